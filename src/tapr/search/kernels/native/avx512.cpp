// AVX-512 without VNNI: float32 for both kinds of bank.
#include "processor.h"
#include "job.h"

#if TAPR_X86
#include <immintrin.h>

TAPR_TARGET("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")
#define TAPR_VEC_BYTES 64
#define TAPR_ADD_PAIRS(sum, a, b) ((sum) + (ints)_mm512_madd_epi16((__m512i)(a), (__m512i)(b)))

namespace tapr {
namespace {

#include "engine.inc"
#include "widen512.inc"

void score_floats(const Job& job, const Packed& packed, Scratch& scratch, size_t begin, size_t end) {
  score_pictures<Float32Dots>(job, packed, scratch, begin, end);
}

}  // namespace

TAPR_TARGET_END

const Isa avx512 = {"avx512", has_avx512, Form::f32, Form::f32, score_floats};

}  // namespace tapr
#endif
