// For every processor the compiler knows; it vectorises as far as the baseline allows.
#include <cstring>

#include "job.h"

#define TAPR_VEC_BYTES 16

namespace tapr {
namespace {

#include "engine.inc"

float half(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16;
  const uint32_t rest = uint32_t(bits & 0x7fff) << 13;
  float value;
  std::memcpy(&value, &rest, sizeof value);
  value *= 0x1p112f;  // moves the exponent's origin from 15 to 127; subnormal numbers come out right as well
  uint32_t out;
  std::memcpy(&out, &value, sizeof out);
  if ((bits & 0x7c00) == 0x7c00) out = 0x7f800000 | (rest & 0x7fffff);
  out |= sign;
  std::memcpy(&value, &out, sizeof value);
  return value;
}

void widen(const uint16_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = half(from[i]);
}

bool always() { return true; }

}  // namespace

const Isa portable = {"portable", always, Form::f32, Form::f32, score_pictures<Float32Dots>};

}  // namespace tapr
