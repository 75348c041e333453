// AVX2, FMA and F16C: every x86 server since 2013.
#include "processor.h"
#include "job.h"

#if TAPR_X86
#include <immintrin.h>

TAPR_TARGET("avx2,fma,f16c")
#define TAPR_VEC_BYTES 32

namespace tapr {
namespace {

#include "engine.inc"

void widen(const uint16_t* from, size_t count, float* to) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = _cvtsh_ss(from[i]);
}

void score_floats(const Job& job, const Packed& packed, Scratch& scratch, size_t begin, size_t end) {
  score_pictures<Float32Dots>(job, packed, scratch, begin, end);
}

}  // namespace

TAPR_TARGET_END

const Isa avx2 = {"avx2", has_avx2, Form::f32, Form::f32, score_floats};

}  // namespace tapr
#endif
