// NEON with SDOT (ARMv8.2 on): float32 for fp16 banks, bytes for int8 codes.
#include <cstring>

#include "processor.h"
#include "job.h"

#if TAPR_DOTPROD
#include <arm_neon.h>

#if !defined(__ARM_FEATURE_DOTPROD)
TAPR_TARGET("arch=armv8.2-a+dotprod")
#define TAPR_TARGET_SET 1
#endif
#define TAPR_VEC_BYTES 16
#define TAPR_REGISTERS 32

namespace tapr {
namespace {

#include "engine.inc"
#include "widen_neon.inc"
#include "codes.inc"

// Codes times probes of two bytes, or of the leading one. A register holds four numbers of four probes.
struct SdotDots {
  static void stage(const Job& job, size_t first, size_t pictures, Scratch& scratch) {
    copy_codes(job, first, pictures, (job.dim + 63) / 64 * 64, scratch);
    stage_scales(job, first, pictures, scratch);
  }

  static void dots(const Job& job, const Packed& packed, const Panel& panel, size_t rows, Scratch& scratch) {
    for (size_t v = 0; v < panel.vectors; ++v) {
      if (panel.first + v * kLanes < job.fine) {
        sweep<2>(packed, panel, v, 0, rows, scratch);
        sweep<2>(packed, panel, v, kLanes / 2, rows, scratch);
      } else {
        sweep<1>(packed, panel, v, 0, rows, scratch);
      }
    }
  }

 private:
  static constexpr int R = 4;  // rows of the bank at a time
  static constexpr int C = 4;  // registers of probes: 16 probes of one byte, or the high and the low bytes of 8

  struct Sums {
    int32x4_t of[R][C];
  };

  // Four numbers of each row, the `step`th four of its register, times those of the probes.
  template <int B, int step> TAPR_INLINE void add(Sums& sum, const int8x16_t* numbers, const int8_t* probes) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const int8_t* at = B == 1 ? probes + 16 * c : probes + c / 2 * kTile + c % 2 * 16;
      const int8x16_t probe = vld1q_s8(at + 64 * step);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum.of[r][c] = vdotq_laneq_s32(sum.of[r][c], probe, numbers[r], step);
    }
  }

  // B bytes of every probe, from a lane of vector `v` on
  template <int B>
  static void sweep(const Packed& packed, const Panel& panel, size_t v, size_t lane, size_t rows, Scratch& scratch) {
    const size_t depth = packed.depth, width = panel.vectors * kLanes, place = v * kLanes + lane;
    const int8_t* probes = static_cast<const int8_t*>(panel.data) + 2 * v * kLanes * depth + 4 * lane;
    const float* unit = packed.unit.data() + panel.first + place;
    for (size_t row = 0; row < rows; row += R) {  // rows past the last are padding, in `dots` as well
      const int8_t* codes = scratch.codes.data() + row * depth;
      Sums sum = {};
      for (size_t k = 0; k < depth; k += 16) {
        const int8_t* at = probes + k / 64 * 2 * kTile + k % 64 * kLanes;
        int8x16_t numbers[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) numbers[r] = vld1q_s8(codes + r * depth + k);
        add<B, 0>(sum, numbers, at);
        add<B, 1>(sum, numbers, at);
        add<B, 2>(sum, numbers, at);
        add<B, 3>(sum, numbers, at);
      }
      for (int r = 0; r < R; ++r) {
        const float scale = scratch.scales.data()[row + r];
        float* to = scratch.dots.data() + (row + r) * width + place;
        for (int c = 0; c < C / B; ++c)
          join((ints)sum.of[r][c], B == 1 ? ints{} : (ints)sum.of[r][c + C - C / B], unit + 4 * c, scale, to + 4 * c);
      }
    }
  }

};

void score_either(const Job& job, const Packed& packed, Scratch& scratch, size_t begin, size_t end) {
  if (job.codes())
    score_pictures<SdotDots>(job, packed, scratch, begin, end);
  else
    score_pictures<Float32Dots>(job, packed, scratch, begin, end);
}

}  // namespace

#if TAPR_TARGET_SET
TAPR_TARGET_END
#endif

const Isa neondot = {"neondot", has_dotprod, Form::f32, Form::i8, score_either};

}  // namespace tapr
#endif
