// AVX2, FMA and F16C: every x86 server since 2013. It multiplies words of 16 bits twice as fast as floats.
#include "processor.h"
#include "job.h"

#if TAPR_X86
#include <immintrin.h>

TAPR_TARGET("avx2,fma,f16c")
#define TAPR_VEC_BYTES 32
#define TAPR_ADD_PAIRS(sum, a, b) ((sum) + (ints)_mm256_madd_epi16((__m256i)(a), (__m256i)(b)))

namespace tapr {
namespace {

#include "engine.inc"
#include "half256.inc"
#include "blocks.inc"

struct Words {
  TAPR_INLINE ints dot(ints sum, ints probe, ints two) {
    return sum + (ints)_mm256_madd_epi16((__m256i)probe, (__m256i)two);
  }
};

#include "words.inc"

void score_words(const Job& job, const Packed& packed, Scratch& scratch, size_t begin, size_t end) {
  if (job.codes())
    score_pictures<WordDots<true>>(job, packed, scratch, begin, end);
  else if (job.coarse())
    score_pictures<WordDots<false>>(job, packed, scratch, begin, end);
  else
    score_pictures<Float32Dots>(job, packed, scratch, begin, end);
}

}  // namespace

TAPR_TARGET_END

const Isa avx2 = {"avx2", has_avx2, Form::f32, Form::i16, score_words, Form::i16};

}  // namespace tapr
#endif
