// AVX-VNNI, for processors without AVX-512: float32 for fp16 banks, bytes for int8 codes.
#include "processor.h"
#include "job.h"

#if TAPR_AVXVNNI
#include <immintrin.h>

TAPR_TARGET("avx2,fma,f16c,avxvnni")
#define TAPR_VEC_BYTES 32
#define TAPR_ADD_PAIRS(sum, a, b) _mm256_dpwssd_avx_epi32((__m256i)(sum), (__m256i)(a), (__m256i)(b))

namespace tapr {
namespace {

#include "engine.inc"
#include "half256.inc"
#include "blocks.inc"
#include "codes.inc"

struct Bytes {
  TAPR_INLINE ints dot(ints sum, ints probe, ints four) {
    return (ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)probe, (__m256i)four);
  }
};

struct Words {
  TAPR_INLINE ints dot(ints sum, ints probe, ints two) {
    return (ints)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)probe, (__m256i)two);
  }
};

#include "bytes.inc"
#include "words.inc"
#include "either.inc"

}  // namespace

TAPR_TARGET_END

const Isa avxvnni = {"avxvnni", has_avxvnni, Form::f32, Form::u8, score_either, Form::i16};

}  // namespace tapr
#endif
