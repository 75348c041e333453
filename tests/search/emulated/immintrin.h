// AVX-512, VNNI, BF16 and AMX in plain C++, for processors without them: what the kernel's sources use, no more.
// tools/test_kernels.py puts this file before the compiler's own. It shows that the sources compute what they should;
// it does not show how fast, nor that a processor does what its manual says.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

// job.h has been read: nothing may be compiled for a set that is not here
#undef TAPR_TARGET
#undef TAPR_TARGET_END
#define TAPR_TARGET(list)
#define TAPR_TARGET_END

#if TAPR_REAL_AVX2  // avxvnni.cpp, on a processor that has all of AVX-VNNI but its two products
#include_next <immintrin.h>

template <class Left, class Right> static inline __m256i shim_products(__m256i sum, __m256i a, __m256i b) {
  constexpr int count = 32 / sizeof(Left);
  Left left[count];
  Right right[count];
  int32_t sums[8];
  std::memcpy(left, &a, 32);
  std::memcpy(right, &b, 32);
  std::memcpy(sums, &sum, 32);
  for (int i = 0; i < count; ++i) sums[i / (count / 8)] += int32_t(left[i]) * right[i];
  std::memcpy(&sum, sums, 32);
  return sum;
}
#define _mm256_dpbusd_avx_epi32 shim_products<uint8_t, int8_t>
#define _mm256_dpwssd_avx_epi32 shim_products<int16_t, int16_t>
#else

typedef float __m512 __attribute__((vector_size(64)));
typedef int32_t __m512i __attribute__((vector_size(64)));
typedef int32_t __m256i __attribute__((vector_size(32)));
typedef uint16_t __mmask16;
typedef uint32_t __mmask32;

#define TAPR_SHIM static inline __attribute__((unused))

template <class To, class From> static inline To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

TAPR_SHIM float shim_half(uint16_t bits) {
  float value = same_bits<float>(uint32_t(bits & 0x7fff) << 13) * 0x1p112f;
  if ((bits & 0x7c00) == 0x7c00) value = same_bits<float>(0x7f800000u | (uint32_t(bits & 0x3ff) << 13));
  return bits & 0x8000 ? -value : value;
}
TAPR_SHIM uint16_t shim_bfloat(float value) {
  const uint32_t bits = same_bits<uint32_t>(value);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
TAPR_SHIM float shim_from_bfloat(uint16_t value) { return same_bits<float>(uint32_t(value) << 16); }

TAPR_SHIM __m512 _mm512_set1_ps(float x) { return __m512{} + x; }
TAPR_SHIM __m512i _mm512_set1_epi32(int32_t x) { return __m512i{} + x; }
TAPR_SHIM __m512i _mm512_load_si512(const void* from) { __m512i out; std::memcpy(&out, from, 64); return out; }
TAPR_SHIM __m256i _mm256_loadu_si256(const __m256i* from) { __m256i out; std::memcpy(&out, from, 32); return out; }
TAPR_SHIM void _mm512_storeu_ps(float* to, __m512 x) { std::memcpy(to, &x, 64); }
TAPR_SHIM void _mm512_store_si512(void* to, __m512i x) { std::memcpy(to, &x, 64); }
TAPR_SHIM void _mm512_mask_storeu_ps(float* to, __mmask16 mask, __m512 x) {
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) to[i] = x[i];
}
template <class V, class Mask> static inline V shim_maskz_halves(Mask mask, const void* from) {
  uint16_t halves[sizeof(V) / 2] = {};
  for (size_t i = 0; i < sizeof(V) / 2; ++i)  // what is masked is not read
    if (mask >> i & 1) std::memcpy(halves + i, static_cast<const char*>(from) + 2 * i, 2);
  V out;
  std::memcpy(&out, halves, sizeof out);
  return out;
}
TAPR_SHIM __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void* from) { return shim_maskz_halves<__m256i>(mask, from); }
TAPR_SHIM __m512i _mm512_maskz_loadu_epi16(__mmask32 mask, const void* from) { return shim_maskz_halves<__m512i>(mask, from); }

TAPR_SHIM __m512 _mm512_max_ps(__m512 a, __m512 b) { return a > b ? a : b; }
TAPR_SHIM __m512i _mm512_max_epi32(__m512i a, __m512i b) { return a > b ? a : b; }
TAPR_SHIM __m512 _mm512_mul_ps(__m512 a, __m512 b) { return a * b; }
TAPR_SHIM __m512 _mm512_sub_ps(__m512 a, __m512 b) { return a - b; }
TAPR_SHIM __m512i _mm512_slli_epi32(__m512i a, unsigned count) { return a << int32_t(count); }
TAPR_SHIM __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
  uint8_t left[64];
  int8_t right[64];
  std::memcpy(left, &a, 64);
  std::memcpy(right, &b, 64);
  for (int i = 0; i < 64; ++i) sum[i / 4] += int32_t(left[i]) * right[i];
  return sum;
}

TAPR_SHIM __m512i _mm512_dpwssd_epi32(__m512i sum, __m512i a, __m512i b) {
  int16_t left[32], right[32];
  std::memcpy(left, &a, 64);
  std::memcpy(right, &b, 64);
  for (int i = 0; i < 32; ++i) sum[i / 2] += int32_t(left[i]) * right[i];
  return sum;
}
TAPR_SHIM __m512i _mm512_madd_epi16(__m512i a, __m512i b) { return _mm512_dpwssd_epi32(__m512i{}, a, b); }
// to the nearest, ties to even; what does not fit, and what is no number, is the least
TAPR_SHIM __m512i _mm512_cvtps_epi32(__m512 a) {
  __m512i out;
  for (int i = 0; i < 16; ++i) out[i] = std::fabs(a[i]) < 0x1p31f ? int32_t(std::nearbyint(a[i])) : INT32_MIN;
  return out;
}
TAPR_SHIM __m256i _mm512_cvtsepi32_epi16(__m512i a) {
  int16_t words[16];
  for (int i = 0; i < 16; ++i) words[i] = int16_t(a[i] < -32768 ? -32768 : a[i] > 32767 ? 32767 : a[i]);
  return same_bits<__m256i>(words);
}
TAPR_SHIM __m256i _mm256_setzero_si256() { return __m256i{}; }
TAPR_SHIM __m256i _mm256_set1_epi16(int16_t x) { return __m256i{} + (int32_t(uint16_t(x)) | int32_t(uint32_t(uint16_t(x)) << 16)); }
TAPR_SHIM void _mm256_store_si256(__m256i* to, __m256i x) { std::memcpy(to, &x, 32); }
TAPR_SHIM __m256i _mm256_min_epi16(__m256i a, __m256i b) {
  int16_t left[16], right[16];
  std::memcpy(left, &a, 32);
  std::memcpy(right, &b, 32);
  for (int i = 0; i < 16; ++i) left[i] = left[i] < right[i] ? left[i] : right[i];
  return same_bits<__m256i>(left);
}
TAPR_SHIM __mmask16 _mm256_cmpeq_epi16_mask(__m256i a, __m256i b) {
  int16_t left[16], right[16];
  std::memcpy(left, &a, 32);
  std::memcpy(right, &b, 32);
  unsigned mask = 0;
  for (int i = 0; i < 16; ++i) mask |= unsigned(left[i] == right[i]) << i;
  return __mmask16(mask);
}

TAPR_SHIM __m512 _mm512_castsi512_ps(__m512i a) { return same_bits<__m512>(a); }
TAPR_SHIM __m256i _mm512_castsi512_si256(__m512i a) { __m256i out; std::memcpy(&out, &a, 32); return out; }
TAPR_SHIM __m256i _mm512_extracti64x4_epi64(__m512i a, int part) {
  __m256i out;
  std::memcpy(&out, reinterpret_cast<const char*>(&a) + 32 * part, 32);
  return out;
}
TAPR_SHIM __m512i _mm512_cvtepu16_epi32(__m256i a) {
  uint16_t halves[16];
  std::memcpy(halves, &a, 32);
  __m512i out;
  for (int i = 0; i < 16; ++i) out[i] = halves[i];
  return out;
}
TAPR_SHIM __m512 _mm512_cvtph_ps(__m256i a) {
  uint16_t halves[16];
  std::memcpy(halves, &a, 32);
  __m512 out;
  for (int i = 0; i < 16; ++i) out[i] = shim_half(halves[i]);
  return out;
}
TAPR_SHIM __m512i _mm512_cvtne2ps_pbh(__m512 high, __m512 low) {
  uint16_t halves[32];
  for (int i = 0; i < 16; ++i) halves[i] = shim_bfloat(low[i]), halves[16 + i] = shim_bfloat(high[i]);
  return _mm512_load_si512(halves);
}

// tiles of 16 rows of 64 bytes: the only shape that is configured
static thread_local uint8_t shim_tiles[8][16][64];
TAPR_SHIM void _tile_loadconfig(const void*) {}
TAPR_SHIM void _tile_release() { std::memset(shim_tiles, 0xff, sizeof shim_tiles); }  // nothing may rest on what they held
TAPR_SHIM void _tile_zero(int tile) { std::memset(shim_tiles[tile], 0, sizeof shim_tiles[tile]); }
TAPR_SHIM void _tile_loadd(int tile, const void* from, size_t stride) {
  for (int row = 0; row < 16; ++row) std::memcpy(shim_tiles[tile][row], static_cast<const char*>(from) + row * stride, 64);
}
TAPR_SHIM void _tile_stored(int tile, void* to, size_t stride) {
  for (int row = 0; row < 16; ++row) std::memcpy(static_cast<char*>(to) + row * stride, shim_tiles[tile][row], 64);
}
TAPR_SHIM void _tile_dpbssd(int sums, int left, int right) {
  for (int m = 0; m < 16; ++m) {
    int32_t sum[16];
    std::memcpy(sum, shim_tiles[sums][m], 64);
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 16; ++n)
        for (int i = 0; i < 4; ++i)
          sum[n] += int32_t(int8_t(shim_tiles[left][m][4 * k + i])) * int8_t(shim_tiles[right][k][4 * n + i]);
    std::memcpy(shim_tiles[sums][m], sum, 64);
  }
}
// as the manual has it: even and odd products are summed apart, in float32
TAPR_SHIM void _tile_dpbf16ps(int sums, int left, int right) {
  uint16_t a[32], b[32];
  for (int m = 0; m < 16; ++m) {
    float even[16] = {}, odd[16] = {}, sum[16];
    std::memcpy(a, shim_tiles[left][m], 64);
    for (int k = 0; k < 16; ++k) {
      std::memcpy(b, shim_tiles[right][k], 64);
      for (int n = 0; n < 16; ++n) {
        even[n] = std::fma(shim_from_bfloat(a[2 * k]), shim_from_bfloat(b[2 * n]), even[n]);
        odd[n] = std::fma(shim_from_bfloat(a[2 * k + 1]), shim_from_bfloat(b[2 * n + 1]), odd[n]);
      }
    }
    std::memcpy(sum, shim_tiles[sums][m], 64);
    for (int n = 0; n < 16; ++n) sum[n] += even[n] + odd[n];
    std::memcpy(shim_tiles[sums][m], sum, 64);
  }
}
#endif
