// AVX-512 with VNNI: float32 for fp16 banks, bytes for int8 codes.
#include "processor.h"
#include "job.h"

#if TAPR_X86
#include <immintrin.h>

TAPR_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")
#define TAPR_VEC_BYTES 64
#define TAPR_ADD_PAIRS(sum, a, b) _mm512_dpwssd_epi32((__m512i)(sum), (__m512i)(a), (__m512i)(b))

namespace tapr {
namespace {

#include "engine.inc"
#include "widen512.inc"
#include "words512.inc"
#include "blocks.inc"
#include "codes.inc"

struct Bytes {
  TAPR_INLINE ints dot(ints sum, ints probe, ints four) {
    return (ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)probe, (__m512i)four);
  }
};

struct Words {
  TAPR_INLINE ints dot(ints sum, ints probe, ints two) {
    return (ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)probe, (__m512i)two);
  }
};

#include "bytes.inc"
#include "words.inc"
#include "either.inc"

}  // namespace

TAPR_TARGET_END

const Isa avx512vnni = {"avx512vnni", has_vnni, Form::f32, Form::u8, score_either, Form::i16};

}  // namespace tapr
#endif
