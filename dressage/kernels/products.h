// Products of matrices, row by row, and what stands between them in a network.

#pragma once

#include "vectors.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace dressage {

#if defined(__AVX512F__)
constexpr int kColumns = 4;  // Vectors of a tile's row: 24 of 32 registers add up.
#elif defined(__AVX__)
constexpr int kColumns = 2;  // 12 of 16.
#else
constexpr int kColumns = 4;  // 24 of 32 on ARM.
#endif
constexpr int kRows = 6;

// A matrix to multiply by from the left: element (row, k) lies at data[row * row_step + k * step].
struct Left {
  const float* data;
  Size row_step, step;
};

enum class From { kZero, kBias, kSum };

// sum[Rows, Columns * kWidth] = start + left[Rows, depth] @ right[depth, Columns * kWidth], in registers.
template <int Rows, int Columns>
INLINE void tile(Size depth, Left left, const float* right, Size right_step, float* sum, Size sum_step, From from,
                 const float* bias) {
  Vector total[Rows][Columns];
#pragma GCC unroll 16
  for (int row = 0; row < Rows; row++)
#pragma GCC unroll 16
    for (int column = 0; column < Columns; column++) {
      const Size at = column * kWidth;
      total[row][column] = from == From::kZero   ? Vector{}
                           : from == From::kBias ? load(bias + at)
                                                 : load(sum + row * sum_step + at);
    }
  for (Size k = 0; k < depth; k++) {
    Vector factor[Columns];
#pragma GCC unroll 16
    for (int column = 0; column < Columns; column++) factor[column] = load(right + k * right_step + column * kWidth);
#pragma GCC unroll 16
    for (int row = 0; row < Rows; row++) {
      const Vector one = splat(left.data[row * left.row_step + k * left.step]);
#pragma GCC unroll 16
      for (int column = 0; column < Columns; column++) total[row][column] += one * factor[column];
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < Rows; row++)
#pragma GCC unroll 16
    for (int column = 0; column < Columns; column++) store(sum + row * sum_step + column * kWidth, total[row][column]);
}

template <int Columns>
__attribute__((noinline)) void tiles(Size rows, Size depth, Left left, const float* right, Size right_step,
                                     float* sum, Size sum_step, From from, const float* bias) {
  Size row = 0;
  const auto next = [&](auto count) {
    const Left here{left.data + row * left.row_step, left.row_step, left.step};
    tile<decltype(count)::value, Columns>(depth, here, right, right_step, sum + row * sum_step, sum_step, from, bias);
    row += count;
  };
  while (row + kRows <= rows) next(std::integral_constant<int, kRows>{});
  switch (rows - row) {
    case 5: next(std::integral_constant<int, 5>{}); break;
    case 4: next(std::integral_constant<int, 4>{}); break;
    case 3: next(std::integral_constant<int, 3>{}); break;
    case 2: next(std::integral_constant<int, 2>{}); break;
    case 1: next(std::integral_constant<int, 1>{}); break;
    default: break;
  }
}

// sum[rows, width] = start + left[rows, depth] @ right[depth, width]; `width` is a multiple of kLane.
inline void multiply(Size rows, Size width, Size depth, Left left, const float* right, Size right_step, float* sum,
                     Size sum_step, From from, const float* bias = nullptr) {
  constexpr Size kStep = kColumns * kWidth;
  Size at = 0;
  for (; at + kStep <= width; at += kStep)
    tiles<kColumns>(rows, depth, left, right + at, right_step, sum + at, sum_step, from, bias + at);
  for (; at < width; at += kWidth)
    tiles<1>(rows, depth, left, right + at, right_step, sum + at, sum_step, from, bias + at);
}

enum class Activation : int64_t { kTanh = 0, kRelu = 1 };

// The second where either is NaN, as the processor's own instructions have it.
INLINE Vector least(Vector bound, Vector value) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_min_ps(bound, value));
#else
  return bound < value ? bound : value;
#endif
}

INLINE Vector greatest(Vector bound, Vector value) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_max_ps(bound, value));
#else
  return bound > value ? bound : value;
#endif
}

// x P(x^2) / Q(x^2), a minimax fit of tanh on [0, 8.3], where the next float is 1; relative error 1e-8 before
// rounding. NaN stays NaN.
INLINE Vector tanh_of(Vector x) {
  x = least(splat(8.3f), greatest(splat(-8.3f), x));
  const Vector square = x * x;
  Vector over = splat(1.46478891e-08f), under = splat(8.29496344e-07f);
  over = over * square + 2.15082491e-05f, under = under * square + 3.37392674e-04f;
  over = over * square + 3.54915485e-03f, under = under * square + 2.60798969e-02f;
  over = over * square + 1.34258583e-01f, under = under * square + 4.67591822e-01f;
  over = over * square + 1.0f, under = under * square + 1.0f;
  return x * over / under;
}

inline void activate(Activation kind, float* values, Size count) {
  for (Size i = 0; i < count; i += kWidth) {
    const Vector value = load(values + i);
    store(values + i, kind == Activation::kTanh ? tanh_of(value) : (value <= Vector{} ? Vector{} : value));
  }
}

// Multiplies slopes behind an activation by its derivative, which its outputs tell.
inline void derive(Activation kind, float* slopes, const float* outputs, Size count) {
  for (Size i = 0; i < count; i += kWidth) {
    const Vector output = load(outputs + i), slope = load(slopes + i);
    store(slopes + i, kind == Activation::kTanh ? slope * (1.0f - output * output)
                                                : (output <= Vector{} ? Vector{} : slope));
  }
}

INLINE float sum_of(Vector value) {
  float lanes[kWidth];
  store(lanes, value);
  for (int half = kWidth / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// Adds the rows of [rows, width] up.
inline void add_rows(const float* values, Size rows, Size width, float* sum) {
  for (Size row = 0; row < rows; row++)
    for (Size i = 0; i < width; i += kWidth) store(sum + i, load(sum + i) + load(values + row * width + i));
}

// Adds up each of `count` runs of `length` numbers.
inline void add_runs(const float* values, Size count, Size length, Size step, float* sum) {
  for (Size i = 0; i < count; i++) {
    Vector total{};
    Size at = 0;
    for (; at + kWidth <= length; at += kWidth) total += load(values + i * step + at);
    for (int lane = 0; lane < kWidth; lane++) sum[i] += total[lane];
    for (; at < length; at++) sum[i] += values[i * step + at];
  }
}

}  // namespace dressage
