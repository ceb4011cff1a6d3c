// What learning does to samples beside its networks: draw numbers, and fetch minibatches.

#pragma once

#include <algorithm>

#include "vectors.h"

namespace dressage {

using Indices = ffi::Buffer<ffi::S32>;
using Bits = ffi::Buffer<ffi::U32>;

constexpr Size kPiece = 1024;  // Samples, or vectors of numbers, that one thread takes at a time.
constexpr Size kAhead = 16;    // Rows asked of memory before they are needed.

// packed [*copies, samples, width], indices [*copies, count] to the rows named: their first part as rows
// [*copies, count, first], the rest as columns [*copies, width - first, count].
inline ffi::Error gather(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                         ffi::Dictionary) {
  const auto packed = arguments.get<Numbers>(0);
  const auto indices = arguments.get<Indices>(1);
  auto rows = results.get<Numbers>(0), columns = results.get<Numbers>(1);
  if (!packed || !indices || !rows || !columns) return ffi::Error::InvalidArgument("gather: buffers of other types");
  const auto shape = packed->dimensions();
  const Size samples = shape[shape.size() - 2], width = shape.back(), count = indices->dimensions().back();
  const Size first = (*rows)->dimensions().back(), copies = copies_of(*packed, 2);
  float *const rows_to = (*rows)->typed_data(), *const columns_to = (*columns)->typed_data();
  const Size pieces = (count + kPiece - 1) / kPiece;
  share(pool, copies * pieces, 8.0 * copies * count * width, [&](Size index) {
    const Size copy = index / pieces, begin = index % pieces * kPiece, end = std::min(count, begin + kPiece);
    const float* from = packed->typed_data() + copy * samples * width;
    const int32_t* chosen = indices->typed_data() + copy * count;
    float* row_to = rows_to + copy * count * first;
    float* column_to = columns_to + copy * count * (width - first);
    const auto row_of = [&](Size i) { return from + std::clamp<Size>(chosen[i], 0, samples - 1) * width; };
    for (Size i = begin; i < end; i++) {
      if (i + kAhead < end) {
        const float* coming = row_of(i + kAhead);
        for (Size at = 0; at < width; at += 16) __builtin_prefetch(coming + at);
      }
      const float* row = row_of(i);
      std::copy_n(row, first, row_to + i * first);
      for (Size c = first; c < width; c++) column_to[(c - first) * count + i] = row[c];
    }
  });
  return ffi::Error::Success();
}

template <int Distance>
INLINE Words rotate(Words value) {
  return value << Distance | value >> (32 - Distance);
}

template <int A, int B, int C, int D>
INLINE void four_rounds(Words& left, Words& right) {
  left += right, right = rotate<A>(right) ^ left;
  left += right, right = rotate<B>(right) ^ left;
  left += right, right = rotate<C>(right) ^ left;
  left += right, right = rotate<D>(right) ^ left;
}

// Threefry-2x32 with 20 rounds of a 64-bit counter (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
// 3", section 4.2). The high half of the counter is `left`.
INLINE void threefry(uint32_t key, uint32_t second_key, Words& left, Words& right) {
  const uint32_t third = key ^ second_key ^ 0x1BD11BDA;
  left += key, right += second_key;
  four_rounds<13, 15, 26, 6>(left, right), left += second_key, right += third + 1;
  four_rounds<17, 29, 16, 24>(left, right), left += third, right += key + 2;
  four_rounds<13, 15, 26, 6>(left, right), left += key, right += second_key + 3;
  four_rounds<17, 29, 16, 24>(left, right), left += second_key, right += third + 4;
  four_rounds<13, 15, 26, 6>(left, right), left += third, right += key + 5;
}

// keys [*copies, 2]; numbers [*copies, count], both words of each counter joined, or [*copies, count, 2], apart.
inline ffi::Error draw(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                       ffi::Dictionary attributes) {
  const auto keys = arguments.get<Bits>(0);
  auto numbers = results.get<Bits>(0);
  const auto told = attributes.get<bool>("apart");
  if (!keys || !numbers || !told) return ffi::Error::InvalidArgument("draw: buffers of other types");
  const bool apart = *told;
  const Size copies = copies_of(*keys, 1);
  const Size count = static_cast<Size>((*numbers)->element_count()) / std::max<Size>(copies, 1) / (apart ? 2 : 1);
  uint32_t* const numbers_to = (*numbers)->typed_data();
  const Size piece = kPiece * kWidth, pieces = (count + piece - 1) / piece;
  share(pool, copies * pieces, 8.0 * copies * count, [&](Size index) {
    const Size copy = index / pieces, begin = index % pieces * piece, end = std::min(count, begin + piece);
    const uint32_t* key = keys->typed_data() + 2 * copy;
    uint32_t* to = numbers_to + copy * count * (apart ? 2 : 1);
    for (Size at = begin; at < end; at += kWidth) {
      Words left, right;
      for (int lane = 0; lane < kWidth; lane++) {
        left[lane] = static_cast<uint32_t>((at + lane) >> 32);
        right[lane] = static_cast<uint32_t>(at + lane);
      }
      threefry(key[0], key[1], left, right);
      const Words joined = left ^ right;
      const int lanes = static_cast<int>(std::min<Size>(kWidth, end - at));
      for (int lane = 0; lane < lanes; lane++) {
        if (apart) to[2 * (at + lane)] = left[lane], to[2 * (at + lane) + 1] = right[lane];
        if (!apart) to[at + lane] = joined[lane];
      }
    }
  });
  return ffi::Error::Success();
}

}  // namespace dressage
