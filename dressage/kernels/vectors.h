// Vectors as wide as the processor's, and the memory and threads that kernels work with.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace dressage {

namespace ffi = xla::ffi;
using Numbers = ffi::Buffer<ffi::F32>;
using Size = int64_t;

#if defined(__AVX512F__)
constexpr int kWidth = 16;  // Numbers of 32 bits in a vector.
#elif defined(__AVX__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
constexpr Size kLane = 16;             // What widths are rounded up to, a multiple of every kWidth.
constexpr double kWorthSharing = 4e5;  // Multiplications; fewer are done before another thread has woken up.

typedef float Vector __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));

#define INLINE __attribute__((always_inline)) inline

INLINE Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
INLINE void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }
INLINE Vector splat(float value) { return value - Vector{}; }
INLINE Size rounded(Size width) { return (width + kLane - 1) / kLane * kLane; }

// Memory of a thread, kept between calls.
inline float* room(std::vector<float>& kept, Size count) {
  if (static_cast<Size>(kept.size()) < count + kLane) kept.resize(count + kLane);
  const auto address = reinterpret_cast<uintptr_t>(kept.data());
  return reinterpret_cast<float*>((address + 63) & ~uintptr_t{63});
}

// Does work(0) to work(count - 1) on this thread and on those of XLA that come to help. It waits for begun work
// alone: a helper that comes late finds nothing left, so that a full pool cannot hold it up.
template <typename Work>
void share(ffi::ThreadPool& pool, Size count, double cost, const Work& work) {
  const Size threads = cost < kWorthSharing ? 1 : std::min<Size>(pool.num_threads(), count);
  if (threads <= 1) {
    for (Size i = 0; i < count; i++) work(i);
    return;
  }
  struct Progress {
    std::atomic<Size> begun{0}, done{0};
  };
  const auto progress = std::make_shared<Progress>();
  const auto help = [progress, count, &work] {
    for (Size i; (i = progress->begun.fetch_add(1)) < count; progress->done.fetch_add(1)) work(i);
  };
  for (Size helper = 1; helper < threads; helper++) pool.Schedule([help] { help(); });
  help();
  for (int looks = 0; progress->done.load() < count; looks++)
    if (looks > 10000) std::this_thread::yield();
}

// How many copies of an array whose last `own` dimensions are one copy's a call is about.
template <typename Buffer>
Size copies_of(const Buffer& buffer, size_t own) {
  Size copies = 1;
  for (size_t d = 0; d + own < buffer.dimensions().size(); d++) copies *= buffer.dimensions()[d];
  return copies;
}

}  // namespace dressage
