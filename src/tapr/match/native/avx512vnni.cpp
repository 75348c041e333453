// AVX-512 with VNNI: float32 for fp16 banks, bytes for int8 codes.
#include "processor.h"
#include "job.h"

#if TAPR_X86
#include <immintrin.h>

#include <cstring>

TAPR_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")
#define TAPR_VEC_BYTES 64

namespace tapr {
namespace {

#include "engine.inc"
#include "widen512.inc"
#include "codes512.inc"

// Codes times probes of two bytes, or of the leading one. VNNI multiplies unsigned by signed: probes are read 128 higher
// than they are, and 128 times the sum of a row's codes is taken off again.
struct VnniDots {
  static void stage(const Job& job, size_t first, size_t pictures, Scratch& scratch) {
    const size_t depth = (job.dim + 63) / 64 * 64, rows = pictures * job.count;
    const int8_t* to = copy_codes(job, first, pictures, depth, scratch);
    int32_t* sums = scratch.code_sums.reserve(rows + kPadRows);
    stage_scales(job, first, pictures, scratch);
    const __m512i ones = _mm512_set1_epi8(1);
    for (size_t row = 0; row < rows; ++row) {
      __m512i sum = _mm512_setzero_si512();
      for (size_t k = 0; k < depth; k += 64)
        sum = _mm512_dpbusd_epi32(sum, ones, _mm512_load_si512(to + row * depth + k));
      sums[row] = _mm512_reduce_add_epi32(sum) * 128;
    }
  }

  static void dots(const Job& job, const Packed& packed, const Panel& panel, size_t rows, Scratch& scratch) {
    size_t v = 0;
    const size_t lanes = job.fine > panel.first ? job.fine - panel.first : 0;
    const size_t vectors = (lanes + kLanes - 1) / kLanes, full = vectors < panel.vectors ? vectors : panel.vectors;
    for (; v + 2 <= full; v += 2) sweep<6, 2, 2>(packed, panel, v, rows, scratch);
    for (; v < full; ++v) sweep<12, 1, 2>(packed, panel, v, rows, scratch);
    for (; v + 2 <= panel.vectors; v += 2) sweep<12, 2, 1>(packed, panel, v, rows, scratch);
    if (v < panel.vectors) sweep<12, 1, 1>(packed, panel, v, rows, scratch);
  }

 private:
  // R rows and C vectors of lanes at a time, B bytes of every probe
  template <int R, int C, int B>
  static void sweep(const Packed& packed, const Panel& panel, size_t v, size_t rows, Scratch& scratch) {
    const size_t depth = packed.depth, width = panel.vectors * kLanes;
    const size_t vector_bytes = 2 * kLanes * depth;
    const int8_t* probes = static_cast<const int8_t*>(panel.data) + v * vector_bytes;
    const float* scales = scratch.scales.data();
    for (size_t row = 0; row < rows; row += R) {
      __m512i sum[R][B * C];
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < B * C; ++c) sum[r][c] = _mm512_setzero_si512();
      for (size_t k = 0; k < depth; k += 64) {
        const int8_t* codes = scratch.codes.data() + row * depth + k;
        const int8_t* tiles = probes + k / 64 * 2 * kTile;
        for (size_t step = 0; step < 16; ++step) {
          __m512i probe[B * C];
#pragma GCC unroll 4
          for (int c = 0; c < B * C; ++c)
            probe[c] = _mm512_load_si512(tiles + c / B * vector_bytes + c % B * kTile + step * 64);
#pragma GCC unroll 12
          for (int r = 0; r < R; ++r) {
            int32_t four;
            std::memcpy(&four, codes + r * depth + 4 * step, 4);
            const __m512i number = _mm512_set1_epi32(four);
#pragma GCC unroll 4
            for (int c = 0; c < B * C; ++c) sum[r][c] = _mm512_dpbusd_epi32(sum[r][c], probe[c], number);
          }
        }
      }
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {  // rows past the last are padding, in `dots` as well
        const __m512i extra = _mm512_set1_epi32(scratch.code_sums.data()[row + r]);
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) {
          const __m512i high = _mm512_sub_epi32(sum[r][B * c], extra);
          const __m512i low = B == 1 ? _mm512_setzero_si512() : _mm512_sub_epi32(sum[r][B * c + B - 1], extra);
          join(high, low, packed.unit.data() + panel.first + (v + c) * kLanes, scales[row + r],
               scratch.dots.data() + (row + r) * width + (v + c) * kLanes);
        }
      }
    }
  }
};

void score_either(const Job& job, const Packed& packed, Scratch& scratch, size_t begin, size_t end) {
  if (job.scales)
    score_pictures<VnniDots>(job, packed, scratch, begin, end);
  else
    score_pictures<Float32Dots>(job, packed, scratch, begin, end);
}

}  // namespace

TAPR_TARGET_END

const Isa avx512vnni = {"avx512vnni", has_vnni, Form::f32, Form::u8, score_either};

}  // namespace tapr
#endif
