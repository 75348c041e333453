// AMX: tiles of 16 rows of the bank by 16 probes.
//
// int8 codes are multiplied as they are, with probes of two bytes. An fp16 number is exactly the sum of two bfloat16
// (11 bits in 8 + 3), and a float32 probe is one to within 2^-16 of its size. With uh, ul, vh, vl these parts,
// u . v = uh . vh + uh . vl + ul . vh, but for that 2^-16 |u||v| and for ul . vl, at most 2^-8 |u| 2^-8 |v|: together
// 3.1e-5 for unit vectors. Products are summed in float32.
#include "processor.h"
#include "job.h"

#if TAPR_AMX
#include <immintrin.h>

TAPR_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,f16c,amx-tile,amx-int8,amx-bf16")
#define TAPR_VEC_BYTES 64
#define TAPR_ADD_PAIRS(sum, a, b) ((sum) + (ints)_mm512_madd_epi16((__m512i)(a), (__m512i)(b)))

namespace tapr {
namespace {

#include "engine.inc"
#include "widen512.inc"
#include "codes.inc"

struct alignas(64) TileShape {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0..3 hold sums, the others rows of the bank and probes.
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

// Codes are read where they lie: 16 rows of a bank are a tile whose rows are d bytes apart.
struct AmxCodeDots {
  // Only rows that are not side by side, that end inside a tile, or at whose end the bank ends are copied.
  static void stage(const Job& job, size_t first, size_t pictures, Scratch& scratch) {
    const size_t depth = (job.dim + 63) / 64 * 64, begin = job.row(first) * job.count;
    const size_t read = (pictures * job.count + kRows - 1) / kRows * kRows;
    stage_scales(job, first, pictures, scratch);
    if (depth == job.dim && begin + read <= job.stored * job.count && job.side_by_side(first, pictures))
      scratch.codes_at = static_cast<const int8_t*>(job.locals) + begin * job.dim;
    else
      scratch.codes_at = copy_codes(job, first, pictures, depth, scratch);
  }

  static void dots(const Job& job, const Packed& packed, const Panel& panel, size_t rows, Scratch& scratch) {
    const size_t vector_bytes = 2 * kLanes * packed.depth;
    const int8_t* probes = static_cast<const int8_t*>(panel.data);
    size_t v = 0;
    for (; v < panel.vectors && panel.first + v * kLanes < job.fine; ++v, probes += vector_bytes)
      sweep<Sums::both_bytes>(packed, panel, v, probes, probes + kTile, rows, scratch);
    for (; v + 2 <= panel.vectors; v += 2, probes += 2 * vector_bytes)
      sweep<Sums::two_vectors>(packed, panel, v, probes, probes + vector_bytes, rows, scratch);
    if (v < panel.vectors) sweep<Sums::one_vector>(packed, panel, v, probes, probes, rows, scratch);
  }

 private:
  static constexpr size_t kRows = 32;  // of the bank at a time: two tiles
  enum class Sums { one_vector, two_vectors, both_bytes };

  template <Sums sums>
  static void sweep(const Packed& packed, const Panel& panel, size_t v, const int8_t* left, const int8_t* right,
                    size_t rows, Scratch& scratch) {
    const size_t width = panel.vectors * kLanes, depth = packed.depth;
    const float* unit = packed.unit.data() + panel.first + v * kLanes;
    const ints none = {};
    int32_t* found = scratch.tile.reserve(kTile);
    for (size_t row = 0; row < rows; row += kRows) {
      if (v == 0)
        multiply<sums != Sums::one_vector, true>(scratch.codes_at + row * depth, depth, left, right, found);
      else
        multiply<sums != Sums::one_vector, false>(scratch.codes_at + row * depth, depth, left, right, found);
      for (size_t r = 0; r < kRows && row + r < rows; ++r) {
        const int32_t* at = found + r / 16 * 512 + r % 16 * kLanes;
        const float scale = scratch.scales.data()[row + r];
        float* to = scratch.dots.data() + (row + r) * width + v * kLanes;
        const ints first = (ints)_mm512_load_si512(at), second = (ints)_mm512_load_si512(at + 256);
        join(first, sums == Sums::both_bytes ? second : none, unit, scale, to);
        if (sums == Sums::two_vectors) join(second, none, unit + kLanes, scale, to + kLanes);
      }
    }
  }

  // 32 rows of codes by 16 or 32 columns of probes. `fresh`: the rows have not been read before, so ask for the next ones.
  template <bool two, bool fresh>
  TAPR_INLINE void multiply(const int8_t* codes, size_t depth, const int8_t* left, const int8_t* right, int32_t* found) {
    const int8_t* next = codes + kAhead;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t k = 0; k < depth; k += 64, codes += 64, left += 2 * kTile, right += 2 * kTile) {
      if (fresh)  // in the order of memory, whatever the order of reading
        for (size_t r = 0; r < kRows; ++r, next += 64) __builtin_prefetch(next, 0, 2);
      _tile_loadd(4, left, 64);
      if (two) _tile_loadd(5, right, 64);
      _tile_loadd(6, codes, depth);
      _tile_loadd(7, codes + 16 * depth, depth);
      _tile_dpbssd(0, 6, 4);
      if (two) _tile_dpbssd(1, 6, 5);
      _tile_dpbssd(2, 7, 4);
      if (two) _tile_dpbssd(3, 7, 5);
    }
    _tile_stored(0, found, 64);
    if (two) _tile_stored(1, found + 256, 64);
    _tile_stored(2, found + 512, 64);
    if (two) _tile_stored(3, found + 768, 64);
  }

  static constexpr size_t kAhead = 16 << 10;  // bytes
};

// Numbers are staged as tiles: [row / 16][k / 32][high, low][row % 16][k % 32], so that each is one run of memory.
// Coarse: high alone.
template <bool coarse> struct AmxHalfDots {
  static constexpr size_t kParts = coarse ? 1 : 2;

  // v = high + low, both bfloat16: high is v rounded, low the rest.
  static void stage(const Job& job, size_t first, size_t pictures, Scratch& scratch) {
    const size_t depth = (job.dim + 63) / 64 * 64;
    uint16_t* to = scratch.halves.reserve(kParts * (pictures * job.count + kPadRows) * depth);
    for (size_t i = 0, row = 0; i < pictures; ++i) {
      const uint16_t* from = static_cast<const uint16_t*>(job.locals) + job.row(first + i) * job.count * job.dim;
      for (size_t j = 0; j < job.count; ++j, ++row, from += job.dim)
        for (size_t k = 0; k < job.dim; k += 32) {
          look_ahead(from + k);
          const __mmask32 kept = job.dim - k < 32 ? (1u << (job.dim - k)) - 1 : ~0u;
          const __m512i halves = _mm512_maskz_loadu_epi16(kept, from + k);
          const __m512 left = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
          const __m512 right = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
          const __m512i high = (__m512i)_mm512_cvtne2ps_pbh(right, left);
          uint16_t* at = to + (row / 16 * depth + k) * kParts * 16 + row % 16 * 32;
          _mm512_store_si512(at, high);
          if (!coarse)
            _mm512_store_si512(at + kTile / 2, (__m512i)_mm512_cvtne2ps_pbh(
                _mm512_sub_ps(right, widened(_mm512_extracti64x4_epi64(high, 1))),
                _mm512_sub_ps(left, widened(_mm512_castsi512_si256(high)))));
        }
    }
  }

  static void dots(const Job&, const Packed& packed, const Panel& panel, size_t rows, Scratch& scratch) {
    for (size_t v = 0; v < panel.vectors; v += 2)
      for (size_t k = 0; k < packed.depth; k += kDepth) {
        if (v + 1 < panel.vectors)
          sweep<true>(packed.depth, panel, v, k, rows, scratch);
        else
          sweep<false>(packed.depth, panel, v, k, rows, scratch);
      }
  }

 private:
  TAPR_INLINE __m512 widened(__m256i bfloats) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bfloats), 16));
  }

  static constexpr size_t kDepth = 256;  // the probes' part for this much of d, two vectors of them, stays in level 1

  // All rows, two tiles at a time, against one or two vectors of probes, over one part of d.
  template <bool two>
  static void sweep(size_t depth, const Panel& panel, size_t v, size_t begin, size_t rows, Scratch& scratch) {
    const size_t width = panel.vectors * kLanes, row_bytes = width * 4;
    const size_t steps = (depth - begin < kDepth ? depth - begin : kDepth) / 32;
    const uint16_t* probes = static_cast<const uint16_t*>(panel.data) + 2 * (v * kLanes * depth + begin * kLanes);
    const size_t second = 2 * kLanes * depth;
    for (size_t row = 0; row < rows; row += 32) {
      const uint16_t* bank = scratch.halves.data() + kParts * (row * depth + begin * 16);
      const uint16_t* below = bank + kParts * 16 * depth;
      const uint16_t* probe = probes;
      float* out = scratch.dots.data() + row * width + v * kLanes;
      if (begin) {
        _tile_loadd(0, out, row_bytes);
        _tile_loadd(1, out + 16 * width, row_bytes);
        if (two) _tile_loadd(2, out + kLanes, row_bytes);
        if (two) _tile_loadd(3, out + 16 * width + kLanes, row_bytes);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      constexpr size_t tiles = kParts * kTile / 2;
      for (size_t step = 0; step < steps; ++step, bank += tiles, below += tiles, probe += kTile) {
        if (coarse) {
          load_bank(bank, below);
          load_probes<two>(probe, second);
          add_products<two>();
        } else {  // in the order that loads least: each product shares a side with the one before
          load_bank(bank + kTile / 2, below + kTile / 2);
          load_probes<two>(probe, second);
          add_products<two>();  // low . high
          load_bank(bank, below);
          add_products<two>();  // high . high
          load_probes<two>(probe + kTile / 2, second);
          add_products<two>();  // high . low
        }
      }
      _tile_stored(0, out, row_bytes);
      _tile_stored(1, out + 16 * width, row_bytes);
      if (two) _tile_stored(2, out + kLanes, row_bytes);
      if (two) _tile_stored(3, out + 16 * width + kLanes, row_bytes);
    }
  }

  TAPR_INLINE void load_bank(const uint16_t* above, const uint16_t* below) {
    _tile_loadd(4, above, 64);
    _tile_loadd(5, below, 64);
  }

  template <bool two> TAPR_INLINE void load_probes(const uint16_t* probe, size_t second) {
    _tile_loadd(6, probe, 64);
    if (two) _tile_loadd(7, probe + second, 64);
  }

  template <bool two> TAPR_INLINE void add_products() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if (two) {
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
};

void score_tiles(const Job& job, const Packed& packed, Scratch& scratch, size_t begin, size_t end) {
  const Tiles tiles;
  if (job.codes())
    score_pictures<AmxCodeDots>(job, packed, scratch, begin, end);
  else if (job.coarse())
    score_pictures<AmxHalfDots<true>>(job, packed, scratch, begin, end);
  else
    score_pictures<AmxHalfDots<false>>(job, packed, scratch, begin, end);
}

}  // namespace

TAPR_TARGET_END

const Isa amx = {"amx", has_amx, Form::bf16, Form::i8, score_tiles, Form::bf16};

}  // namespace tapr
#endif
