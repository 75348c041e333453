// AMX: tiles of 16 rows of the bank by 16 probes.
//
// int8 codes are multiplied as they are, with probes of two bytes. An fp16 number is the sum of two bfloat16, exactly
// (11 bits in 8 + 8), and a float32 probe is one to within 2^-17: with uh, ul, vh, vl these parts,
// u . v = uh . vh + uh . vl + ul . vh, short of it by at most 2^-17 |u||v| and what is left out, ul . vl, at most
// 2^-18 |u||v|: together about 1.2e-5 for unit vectors. Products are summed in float32.
#include "job.h"

#if TAPR_AMX
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

TAPR_TARGET("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,amx-tile,amx-int8,amx-bf16")
#define TAPR_VEC_BYTES 64

namespace tapr {
namespace {

#include "engine.inc"
#include "widen512.inc"
#include "codes512.inc"

struct alignas(64) TileShape {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0..3 hold sums, 4 and 5 the probes' high and low parts, 6 and 7 rows of the bank.
struct Tiles {
  Tiles() {
    TileShape shape;
    for (int i = 0; i < 8; ++i) {
      shape.bytes[i] = 64;
      shape.rows[i] = 16;
    }
    _tile_loadconfig(&shape);
  }
  ~Tiles() { _tile_release(); }
};

// Rows of the bank are staged as tiles too: [row / 16][k / 64 or 32][row % 16], so that each is one run of memory.
struct AmxCodeDots {
  static void stage(const Job& job, size_t first, size_t rows, Scratch& scratch) {
    const size_t depth = (job.dim + 63) / 64 * 64;
    int8_t* to = scratch.codes.reserve((rows + kPadRows) * depth);
    const int8_t* from = static_cast<const int8_t*>(job.locals) + first * job.dim;
    for (size_t row = 0; row < rows; ++row, from += job.dim)
      for (size_t k = 0; k < job.dim; k += 64) {
        const __mmask64 kept = job.dim - k < 64 ? (uint64_t(1) << (job.dim - k)) - 1 : ~uint64_t(0);
        _mm512_store_si512(to + (row / 16 * depth + k) * 16 + row % 16 * 64, _mm512_maskz_loadu_epi8(kept, from + k));
      }
  }

  static void dots(const Job& job, const Packed& packed, const Panel& panel, size_t first, size_t rows,
                   Scratch& scratch) {
    const size_t width = panel.vectors * kLanes, depth = packed.depth;
    int32_t* sums = scratch.tile.reserve(kTile);
    for (size_t v = 0; v < panel.vectors; ++v)
      for (size_t row = 0; row < rows; row += 32) {
        const int8_t* codes = scratch.codes.data() + row * depth;
        const int8_t* probes = static_cast<const int8_t*>(panel.data) + v * 2 * kLanes * depth;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (size_t k = 0; k < depth; k += 64, codes += kTile, probes += 2 * kTile) {
          scratch.ahead.step<8>();
          _tile_loadd(4, probes, 64);
          _tile_loadd(5, probes + kTile, 64);
          _tile_loadd(6, codes, 64);
          _tile_loadd(7, codes + 16 * depth, 64);
          _tile_dpbssd(0, 6, 4);
          _tile_dpbssd(1, 6, 5);
          _tile_dpbssd(2, 7, 4);
          _tile_dpbssd(3, 7, 5);
        }
        _tile_stored(0, sums, 64);
        _tile_stored(1, sums + 256, 64);
        _tile_stored(2, sums + 512, 64);
        _tile_stored(3, sums + 768, 64);
        for (size_t r = 0; r < 32 && row + r < rows; ++r) {
          const int32_t* at = sums + r / 16 * 512 + r % 16 * kLanes;
          join(_mm512_load_si512(at), _mm512_load_si512(at + 256), packed.unit.data() + panel.first + v * kLanes,
               job.scales[first + row + r], scratch.dots.data() + (row + r) * width + v * kLanes);
        }
      }
  }
};

struct AmxHalfDots {
  // v = high + low, both bfloat16: high is v cut off after 8 bits, low the rest. Tiles of high and low alternate.
  static void stage(const Job& job, size_t first, size_t rows, Scratch& scratch) {
    const size_t depth = (job.dim + 63) / 64 * 64;
    uint16_t* to = scratch.halves.reserve(2 * (rows + kPadRows) * depth);
    const uint16_t* from = static_cast<const uint16_t*>(job.locals) + first * job.dim;
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (size_t row = 0; row < rows; ++row, from += job.dim)
      for (size_t k = 0; k < job.dim; k += 16) {
        const __mmask16 kept = job.dim - k < 16 ? static_cast<__mmask16>((1u << (job.dim - k)) - 1) : 0xffff;
        const __m512 value = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(kept, from + k));
        const __m512i cut = _mm512_and_si512(_mm512_castps_si512(value), upper);
        const __m512i rest = _mm512_castps_si512(_mm512_sub_ps(value, _mm512_castsi512_ps(cut)));
        uint16_t* at = to + (row / 16 * depth + k / 32 * 32) * 32 + row % 16 * 32 + k % 32;
        _mm256_store_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(_mm512_srli_epi32(cut, 16)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(at + kTile / 2),
                           _mm512_cvtepi32_epi16(_mm512_srli_epi32(rest, 16)));
      }
  }

  static void dots(const Job&, const Packed& packed, const Panel& panel, size_t, size_t rows, Scratch& scratch) {
    const size_t width = panel.vectors * kLanes, depth = packed.depth;
    const size_t tiles = (rows + 15) / 16, blocks = (tiles + 3) / 4;
    for (size_t v = 0; v < panel.vectors; ++v)
      for (size_t block = 0; block < blocks; ++block) {  // as even as can be: a block of one tile would wait for itself
        const size_t first = block * tiles / blocks, used = (block + 1) * tiles / blocks - first;
        const uint16_t* bank = scratch.halves.data() + first * 32 * depth;
        const uint16_t* probes = static_cast<const uint16_t*>(panel.data) + v * 2 * kLanes * depth;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
#define TAPR_ROWS(sum)                                        \
  _tile_loadd(6, bank + (sum) * 32 * depth, 64);              \
  _tile_loadd(7, bank + (sum) * 32 * depth + kTile / 2, 64);  \
  _tile_dpbf16ps(sum, 6, 4);                                  \
  _tile_dpbf16ps(sum, 6, 5);                                  \
  _tile_dpbf16ps(sum, 7, 4);
        for (size_t k = 0; k < depth; k += 32, bank += kTile, probes += kTile) {
          scratch.ahead.step<16>();
          _tile_loadd(4, probes, 64);
          _tile_loadd(5, probes + kTile / 2, 64);
          TAPR_ROWS(0)
          if (used > 1) { TAPR_ROWS(1) }
          if (used > 2) { TAPR_ROWS(2) }
          if (used > 3) { TAPR_ROWS(3) }
        }
#undef TAPR_ROWS
        float* out = scratch.dots.data() + first * 16 * width + v * kLanes;
        _tile_stored(0, out, width * 4);
        if (used > 1) _tile_stored(1, out + 16 * width, width * 4);
        if (used > 2) _tile_stored(2, out + 32 * width, width * 4);
        if (used > 3) _tile_stored(3, out + 48 * width, width * 4);
      }
  }
};

void score_tiles(const Job& job, const Packed& packed, Scratch& scratch, size_t begin, size_t end) {
  const Tiles tiles;
  if (job.scales)
    score_pictures<AmxCodeDots>(job, packed, scratch, begin, end);
  else
    score_pictures<AmxHalfDots>(job, packed, scratch, begin, end);
}

}  // namespace

TAPR_TARGET_END

// The processor has it, and the system lets this process use it (Linux asks for permission to be requested).
static bool has_amx() {
  static const bool answer = [] {
    constexpr unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
    unsigned a, b, c, d;
    if (!avx512.supported() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if ((d & (bf16 | tile | int8)) != (bf16 | tile | int8)) return false;
    constexpr long request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return answer;
}

const Isa amx = {"amx", has_amx, Form::bf16, Form::i8, score_tiles};

}  // namespace tapr
#endif
