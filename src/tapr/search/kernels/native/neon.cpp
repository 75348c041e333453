// NEON, which every 64-bit ARM processor has: float32 for both kinds of bank.
#include <cstring>

#include "job.h"

#if TAPR_NEON
#include <arm_neon.h>

#define TAPR_VEC_BYTES 16
#define TAPR_REGISTERS 32

namespace tapr {
namespace {

#include "engine.inc"
#include "widen_neon.inc"

bool always() { return true; }

}  // namespace

const Isa neon = {"neon", always, Form::f32, Form::f32, score_pictures<Float32Dots>};

}  // namespace tapr
#endif
