// Probes in the form that a kernel reads.
#include <cmath>
#include <cstring>

#include "job.h"

namespace tapr {
namespace {

// to the nearest bfloat16, ties to even
uint16_t bfloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float from_bfloat(uint16_t value) {
  const uint32_t bits = uint32_t(value) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

// To the nearest whole number, ties to even: 1.5 * 2^52 leaves no room for a fraction. |value| < 2^51.
double whole(double value) { return (value + 6755399441055744.0) - 6755399441055744.0; }

size_t depth_of(Form form, size_t dim) {
  return form == Form::f32 ? dim : (dim + 63) / 64 * 64;
}

// The step of a probe's 16 bits: the least whose numbers fit and whose sums of products fit 32 bits. With codes c, a sum is
// at most 127 sum |u| / step, and with vectors of length L in steps of 2^-14 at most |u| / step L 2^14, which is half of
// what fits; rounding adds little. search/kernels/cpu.py has the same.
double word_step(const float* vector, size_t dim, bool codes) {
  double top = 0, sum = 0, squares = 0;
  for (size_t k = 0; k < dim; ++k) {
    const double size = std::fabs(double(vector[k]));
    top = std::fmax(top, size);
    sum += size;
    squares += size * size;
  }
  return std::fmax(top / 32767, codes ? sum * (127 * 1.01 / 2147483648.0) : std::sqrt(squares) / 65536);
}

}  // namespace

void pack(const Job& job, Form form, Packed& packed) {
  const size_t vectors = (job.probes + kLanes - 1) / kLanes, lanes = vectors * kLanes;
  const size_t depth = depth_of(form, job.dim);
  packed.form = form;
  packed.depth = depth;
  float* sharpness = packed.sharpness.reserve(lanes);
  float* unit = packed.unit.reserve(lanes);
  for (size_t probe = 0; job.sharpness && probe < job.probes; ++probe) sharpness[probe] = job.sharpness[probe];

  float* f32 = form == Form::f32 ? packed.f32.reserve(lanes * depth) : nullptr;
  int16_t* i16 = form == Form::i16 ? packed.i16.reserve(lanes * depth) : nullptr;
  uint16_t* bf16 = form == Form::bf16 ? packed.bf16.reserve(2 * lanes * depth) : nullptr;
  int8_t* bytes = form == Form::i8 || form == Form::u8 ? packed.i8.reserve(2 * lanes * depth) : nullptr;
  const uint8_t offset = form == Form::u8 ? 128 : 0;
  if (bytes) std::memset(bytes, offset, 2 * lanes * depth);

  for (size_t first = 0; first < vectors; first += kPanel) {
    const size_t width = vectors - first < kPanel ? vectors - first : kPanel;
    const size_t start = first * kLanes * depth;  // numbers before this panel
    const void* data = f32    ? static_cast<const void*>(f32 + start)
                       : i16  ? static_cast<const void*>(i16 + start)
                       : bf16 ? static_cast<const void*>(bf16 + 2 * start)
                              : static_cast<const void*>(bytes + 2 * start);
    packed.panels.push_back({first * kLanes, width, data});
    for (size_t probe = first * kLanes; probe < job.probes && probe < (first + width) * kLanes; ++probe) {
      const float* vector = job.vectors + probe * job.dim;
      const size_t v = probe / kLanes - first, lane = probe % kLanes;
      float top = 0;
      for (size_t k = 0; k < job.dim; ++k) top = std::fmax(top, std::fabs(vector[k]));
      unit[probe] = i16 ? static_cast<float>(word_step(vector, job.dim, job.codes())) : top / 127;
      for (size_t k = 0; k < job.dim; ++k) {
        if (f32) {
          f32[start + (v * depth + k) * kLanes + lane] = vector[k];
        } else if (i16) {
          if (unit[probe] > 0)
            i16[start + (v * depth + k / 2 * 2) * kLanes + 2 * lane + k % 2] = static_cast<int16_t>(
                std::fmin(32767, std::fmax(-32767, whole(double(vector[k]) / unit[probe]))));
        } else if (bf16) {
          uint16_t* at = bf16 + 2 * (start + v * kLanes * depth) + k / 32 * kTile + (k / 2 % 16 * kLanes + lane) * 2 + k % 2;
          at[0] = bfloat(vector[k]);
          at[kTile / 2] = bfloat(vector[k] - from_bfloat(at[0]));
        } else if (top > 0) {
          int8_t* at = bytes + 2 * (start + v * kLanes * depth) + k / 64 * 2 * kTile + (k / 4 % 16 * kLanes + lane) * 4 + k % 4;
          const double steps = double(vector[k]) / unit[probe];
          const double high = std::fmin(127, std::fmax(-127, whole(steps)));
          const double low = whole((steps - high) * 254);
          at[0] = static_cast<int8_t>(static_cast<uint8_t>(static_cast<int>(high)) + offset);
          at[kTile] = static_cast<int8_t>(static_cast<uint8_t>(static_cast<int>(low)) + offset);
        }
      }
    }
  }
}

}  // namespace tapr
