// Towers of dense layers, forward and backward, for XLA's CPU backend.
//
// XLA hands each product of a network to a library on its own: every activation goes through memory between them,
// the gradient of a weight is computed on one core, and a minibatch of a hundred samples never reaches a second.
// Here a block of samples goes through a whole tower while it lies in the first-level cache, and towers and blocks
// are dealt out to the threads that XLA already has.
//
// Samples are rows, except in what a tower gives and takes at its end: there `[out, samples]` lets XLA fuse the
// loss behind it over samples. Weights come as `[out, in]`, each layer's own. Inside, the width of a layer is
// rounded up to a multiple of kLane with zeros: a unit that does not exist stays 0 and passes nothing on. Sums over
// samples are taken in parts whose number depends on the sizes alone, and added in their order: results are the
// same, bit for bit, however many threads there are.

#pragma once

#include <algorithm>
#include <string>

#include "products.h"

namespace dressage {

constexpr Size kBlock = 96;  // Samples that pass a tower together; a multiple of kRows.
constexpr Size kPart = 384;  // Least samples of a sum of its own.
constexpr Size kMostParts = 64;
constexpr Size kNarrow = 3;  // Outputs of a last layer up to which a sum for each is less work than a whole lane.

struct Layer {
  const float *weight, *bias;  // [out, in], [out]; a backward pass needs no bias.
  Size in, out;
};

using Tower = std::vector<Layer>;

// What a call is about: copies of the same towers (of seeds, of agents), each with samples and weights of its own.
struct Problem {
  Size copies, samples, features;
  std::vector<Tower> towers;  // Of the first copy.
  std::vector<Activation> activations;

  Tower tower(Size copy, Size index) const {
    Tower found = towers[index];
    for (Layer& layer : found) {
      layer.weight += copy * layer.in * layer.out;
      if (layer.bias != nullptr) layer.bias += copy * layer.out;
    }
    return found;
  }

  double cost() const {
    double products = 0;
    for (const Tower& tower : towers)
      for (const Layer& layer : tower) products += static_cast<double>(layer.in) * layer.out;
    return products * copies * samples;
  }
};

// [out, in] to [out, rounded(in)].
inline void widen(const Layer& layer, float* to) {
  const Size step = rounded(layer.in);
  for (Size o = 0; o < layer.out; o++)
    std::fill(std::copy_n(layer.weight + o * layer.in, layer.in, to + o * step), to + (o + 1) * step, 0.0f);
}

// [out, in] to [in, rounded(out)].
inline void transpose(const Layer& layer, float* to) {
  const Size step = rounded(layer.out);
  for (Size i = 0; i < layer.in; i++) {
    for (Size o = 0; o < layer.out; o++) to[i * step + o] = layer.weight[o * layer.in + i];
    for (Size o = layer.out; o < step; o++) to[i * step + o] = 0;
  }
}

// The last layer, to [out, samples]. Its units alone count: beside them may stand what infinity made of a zero.
inline void put_outputs(const float* values, Size rows, Size values_step, const Layer& layer, float* outputs,
                        Size step) {
  const Size whole = layer.in / kWidth * kWidth;
  for (Size row = 0; row < rows; row++)
    for (Size o = 0; o < layer.out; o++) {
      const float *value = values + row * values_step, *weight = layer.weight + o * layer.in;
      Vector products{};
      for (Size i = 0; i < whole; i += kWidth) products += load(value + i) * load(weight + i);
      float total = sum_of(products) + layer.bias[o];
      for (Size i = whole; i < layer.in; i++) total += value[i] * weight[i];
      outputs[o * step + row] = total;
    }
}

inline void forward_blocks(const Tower& tower, Activation activation, const float* inputs, Size samples, float* outputs,
                    Size outputs_step, const std::vector<float*>& hidden) {
  static thread_local std::vector<float> kept;
  const Layer& last = tower.back();
  const bool narrow = last.out <= kNarrow;
  Size needed = 0, widest = 0;
  for (const Layer& layer : tower) {
    needed += (layer.in + 1) * rounded(layer.out);
    widest = std::max(widest, rounded(layer.out));
  }
  needed += 2 * kBlock * widest;
  float* free = room(kept, needed);
  std::vector<const float*> weights, biases;
  for (const Layer& layer : tower) {
    if (narrow && &layer == &last) continue;
    weights.push_back(free), transpose(layer, free), free += layer.in * rounded(layer.out);
    biases.push_back(free);
    std::fill(std::copy_n(layer.bias, layer.out, free), free + rounded(layer.out), 0.0f), free += rounded(layer.out);
  }
  for (Size at = 0; at < samples; at += kBlock) {
    const Size rows = std::min(kBlock, samples - at);
    const float* values = inputs + at * tower[0].in;
    Size step = tower[0].in;
    for (size_t l = 0; l + 1 < tower.size(); l++) {
      const Size width = rounded(tower[l].out);
      float* after = hidden.empty() ? free + l % 2 * kBlock * widest : hidden[l] + at * width;
      multiply(rows, width, tower[l].in, {values, step, 1}, weights[l], width, after, width, From::kBias, biases[l]);
      activate(activation, after, rows * width);
      values = after, step = width;
    }
    if (narrow) {
      put_outputs(values, rows, step, last, outputs + at, outputs_step);
      continue;
    }
    const Size width = rounded(last.out);
    float* found = free + (tower.size() - 1) % 2 * kBlock * widest;
    multiply(rows, width, last.in, {values, step, 1}, weights.back(), width, found, width, From::kBias, biases.back());
    for (Size o = 0; o < last.out; o++)
      for (Size row = 0; row < rows; row++) outputs[o * outputs_step + at + row] = found[row * width + o];
  }
}

// The sums over samples that a backward pass collects, laid out one after another.
struct Sums {
  struct Place {
    Size weight, bias;  // The first layer's weight as [in, rounded(out)], any other's as [out, rounded(in)].
  };
  std::vector<Place> places;
  Size count = 0;

  explicit Sums(const Tower& tower) {
    for (size_t l = 0; l < tower.size(); l++) {
      const Size weight = l == 0 ? tower[l].in * rounded(tower[l].out) : tower[l].out * rounded(tower[l].in);
      places.push_back({count, count + weight});
      count += weight + rounded(tower[l].out);
    }
  }
};

inline void backward_blocks(const Tower& tower, Activation activation, const float* inputs, Size samples,
                     const std::vector<const float*>& hidden, const float* slopes, Size slopes_step, const Sums& sums,
                     float* sum, float* input_slopes) {
  static thread_local std::vector<float> kept;
  Size widest = 0, needed = 0;
  for (const Layer& layer : tower) {
    widest = std::max({widest, rounded(layer.out), rounded(layer.in)});
    needed += layer.out * rounded(layer.in);
  }
  float* free = room(kept, needed + 2 * kBlock * widest);
  float* both[2] = {free, free + kBlock * widest};
  free += 2 * kBlock * widest;
  std::vector<const float*> weights;
  for (const Layer& layer : tower) {  // With rows of full width.
    const Size step = rounded(layer.in);
    weights.push_back(step == layer.in ? layer.weight : free);
    if (step == layer.in) continue;
    widen(layer, free), free += layer.out * step;
  }
  std::fill_n(sum, sums.count, 0.0f);
  for (Size at = 0; at < samples; at += kBlock) {
    const Size rows = std::min(kBlock, samples - at);
    const Size last = static_cast<Size>(tower.size()) - 1;
    add_runs(slopes + at, tower[last].out, rows, slopes_step, sum + sums.places[last].bias);
    Left behind{slopes + at, 1, slopes_step};  // Samples by units of the layer in turn.
    for (Size l = last; l > 0; l--) {
      const Size width = rounded(tower[l].in);
      const float* before = hidden[l - 1] + at * width;
      float* slope = both[l % 2];
      multiply(tower[l].out, width, rows, {behind.data, behind.step, behind.row_step}, before, width,
               sum + sums.places[l].weight, width, From::kSum);
      multiply(rows, width, tower[l].out, behind, weights[l], width, slope, width, From::kZero);
      derive(activation, slope, before, rows * width);
      add_rows(slope, rows, width, sum + sums.places[l - 1].bias);
      behind = {slope, width, 1};
    }
    const Layer& first = tower[0];
    const Size behind_step = behind.row_step;
    multiply(first.in, behind_step, rows, {inputs + at * first.in, 1, first.in}, behind.data, behind_step,
             sum + sums.places[0].weight, behind_step, From::kSum);
    if (input_slopes == nullptr) continue;
    const Size width = rounded(first.in);
    float* slope = both[0];
    multiply(rows, width, first.out, behind, weights[0], width, slope, width, From::kZero);
    for (Size row = 0; row < rows; row++)
      std::copy_n(slope + row * width, first.in, input_slopes + (at + row) * first.in);
  }
}

// Adds up the parts of a tower's sums and gives them the shapes of its parameters.
inline void collect(const Tower& tower, const Sums& sums, const float* parts, Size count, float* const* gradients) {
  for (size_t l = 0; l < tower.size(); l++) {
    const Size in = tower[l].in, out = tower[l].out;
    const Size out_step = l == 0 ? 1 : rounded(in), in_step = l == 0 ? rounded(out) : 1;
    for (Size part = 0; part < count; part++) {
      const float* weight = parts + part * sums.count + sums.places[l].weight;
      const float* bias = parts + part * sums.count + sums.places[l].bias;
      float *to = gradients[2 * l], *bias_to = gradients[2 * l + 1];
      for (Size o = 0; o < out; o++) {
        bias_to[o] = part == 0 ? bias[o] : bias_to[o] + bias[o];
        for (Size i = 0; i < in; i++) {
          const float value = weight[o * out_step + i * in_step];
          to[o * in + i] = part == 0 ? value : to[o * in + i] + value;
        }
      }
    }
  }
}

inline ffi::Error wrong(const char* what) {
  return ffi::Error::InvalidArgument(std::string("dressage's kernel: ") + what);
}

inline ffi::ErrorOr<std::vector<const float*>> places_of(ffi::RemainingArgs& arguments) {
  std::vector<const float*> places;
  for (size_t i = 0; i < arguments.size(); i++) {
    const auto one = arguments.get<Numbers>(i);
    if (!one) return ffi::Unexpected(one.error());
    places.push_back(one->typed_data());
  }
  return places;
}

inline ffi::ErrorOr<std::vector<float*>> places_of(ffi::RemainingRets& results) {
  std::vector<float*> places;
  for (size_t i = 0; i < results.size(); i++) {
    auto one = results.get<Numbers>(i);
    if (!one) return ffi::Unexpected(one.error());
    places.push_back((*one)->typed_data());
  }
  return places;
}

// Moves `count` of what begins at `from` to a vector of its own.
template <typename Place>
std::vector<Place> take(Place const*& from, size_t count) {
  const std::vector<Place> taken(from, from + count);
  from += count;
  return taken;
}

// Reads inputs `[*copies, samples, features]` and the layers of every tower: weight and bias, or the weight alone.
inline ffi::ErrorOr<Problem> read(ffi::RemainingArgs& arguments, ffi::Dictionary& attributes, bool with_bias) {
  const auto depths = attributes.get<ffi::Span<const int64_t>>("depths");
  const auto activations = attributes.get<ffi::Span<const int64_t>>("activations");
  if (!depths || !activations) return ffi::Unexpected(wrong("depths and activations are missing"));
  const auto inputs = arguments.get<Numbers>(0);
  if (!inputs) return ffi::Unexpected(inputs.error());
  const auto shape = inputs->dimensions();
  if (shape.size() < 2) return ffi::Unexpected(wrong("inputs need samples and features"));
  Problem problem{copies_of(*inputs, 2), shape[shape.size() - 2], shape.back(), {}, {}};
  if (activations->size() != depths->size()) return ffi::Unexpected(wrong("each tower needs an activation"));
  for (const int64_t activation : *activations) problem.activations.push_back(Activation(activation));
  size_t next = 1;
  for (const int64_t depth : *depths) {
    Tower tower;
    Size in = problem.features;
    for (int64_t l = 0; l < depth; l++) {
      const auto weight = arguments.get<Numbers>(next++);
      if (!weight) return ffi::Unexpected(weight.error());
      const auto sizes = weight->dimensions();
      if (sizes.size() < 2 || sizes.back() != in) return ffi::Unexpected(wrong("a layer does not fit what is before it"));
      const Size out = sizes[sizes.size() - 2];
      const float* bias = nullptr;
      if (with_bias) {
        const auto found = arguments.get<Numbers>(next++);
        if (!found) return ffi::Unexpected(found.error());
        bias = found->typed_data();
      }
      tower.push_back({weight->typed_data(), bias, in, out});
      in = out;
    }
    problem.towers.push_back(std::move(tower));
  }
  return problem;
}

// Results: for each tower its outputs [*copies, out, samples], and behind them, where a backward pass will come, the
// values of its hidden layers [*copies, samples, rounded(out)].
inline ffi::Error forward(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                          ffi::Dictionary attributes) {
  auto read_problem = read(arguments, attributes, true);
  if (!read_problem) return read_problem.error();
  const Problem& problem = *read_problem;
  const auto given = places_of(arguments);
  const auto found = places_of(results);
  if (!given || !found) return wrong("arrays of other types");
  const bool keep = results.size() > problem.towers.size();
  std::vector<std::vector<float*>> places;
  float* const* next = found->data();
  for (const Tower& tower : problem.towers) places.push_back(take(next, keep ? tower.size() : 1));
  const float* inputs = given->front();
  const Size whole = problem.copies * static_cast<Size>(problem.towers.size());
  const Size wanted = std::max<Size>(1, 4 * pool.num_threads() / std::max<Size>(whole, 1));
  const Size blocks = (problem.samples + kBlock - 1) / kBlock;
  const Size part = (blocks + wanted - 1) / wanted * kBlock;
  const Size parts = std::max<Size>(1, (problem.samples + part - 1) / std::max<Size>(part, 1));
  share(pool, whole * parts, problem.cost(), [&](Size index) {
    const Size copy = index / parts / problem.towers.size(), t = index / parts % problem.towers.size();
    const Size begin = index % parts * part, samples = std::min(part, problem.samples - begin);
    const Size first = copy * problem.samples + begin;
    const Tower tower = problem.tower(copy, t);
    std::vector<float*> hidden;
    for (size_t l = 0; l + 1 < places[t].size(); l++)
      hidden.push_back(places[t][l + 1] + first * rounded(tower[l].out));
    forward_blocks(tower, problem.activations[t], inputs + first * problem.features, samples,
                   places[t][0] + copy * problem.samples * tower.back().out + begin, problem.samples, hidden);
  });
  return ffi::Error::Success();
}

// Arguments: inputs, each tower's weights, each tower's hidden values, each tower's slopes [*copies, out, samples].
// Results: for each tower the gradients of weight and bias, layer by layer; behind all of them, where they are
// wanted, each tower's part of the inputs' slopes [*copies, samples, features].
inline ffi::Error backward(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                           ffi::Dictionary attributes) {
  const auto input_slopes = attributes.get<bool>("input_slopes");
  if (!input_slopes) return input_slopes.error();
  auto read_problem = read(arguments, attributes, false);
  if (!read_problem) return read_problem.error();
  const Problem& problem = *read_problem;
  const size_t towers = problem.towers.size();
  const auto given = places_of(arguments);
  const auto found = places_of(results);
  if (!given || !found) return wrong("arrays of other types");
  const float* inputs = given->front();
  const float* const* next = given->data() + 1;
  for (const Tower& tower : problem.towers) next += tower.size();
  std::vector<std::vector<const float*>> hidden;
  for (const Tower& tower : problem.towers) hidden.push_back(take(next, tower.size() - 1));
  const std::vector<const float*> slopes = take(next, towers);
  float* const* next_result = found->data();
  std::vector<std::vector<float*>> gradients;
  for (const Tower& tower : problem.towers) gradients.push_back(take(next_result, 2 * tower.size()));
  const std::vector<float*> inputs_to =
      *input_slopes ? take(next_result, towers) : std::vector<float*>(towers, nullptr);

  const Size least = std::max(kPart, (problem.samples + kMostParts - 1) / kMostParts);
  const Size part = (least + kBlock - 1) / kBlock * kBlock;
  const Size parts = std::max<Size>(1, (problem.samples + part - 1) / part);
  std::vector<Sums> sums;
  std::vector<Size> offsets;
  Size count = 0;  // Of the sums of one copy.
  for (const Tower& tower : problem.towers) {
    sums.emplace_back(tower);
    offsets.push_back(count);
    count += parts * sums.back().count;
  }
  static thread_local std::vector<float> kept;
  float* collected = room(kept, problem.copies * count);
  share(pool, problem.copies * towers * parts, 2 * problem.cost(), [&](Size index) {
    const Size copy = index / parts / towers, t = index / parts % towers;
    const Size begin = index % parts * part, samples = std::min(part, problem.samples - begin);
    const Size first = copy * problem.samples + begin;
    const Tower tower = problem.tower(copy, t);
    std::vector<const float*> values;
    for (size_t l = 0; l + 1 < tower.size(); l++) values.push_back(hidden[t][l] + first * rounded(tower[l].out));
    float* slopes_to = inputs_to[t] == nullptr ? nullptr : inputs_to[t] + first * problem.features;
    backward_blocks(tower, problem.activations[t], inputs + first * problem.features, samples, values,
                    slopes[t] + copy * problem.samples * tower.back().out + begin, problem.samples, sums[t],
                    collected + copy * count + offsets[t] + index % parts * sums[t].count, slopes_to);
  });
  for (Size copy = 0; copy < problem.copies; copy++)
    for (size_t t = 0; t < towers; t++) {
      const Tower& tower = problem.towers[t];
      std::vector<float*> to = gradients[t];
      for (size_t l = 0; l < tower.size(); l++) {
        to[2 * l] += copy * tower[l].in * tower[l].out;
        to[2 * l + 1] += copy * tower[l].out;
      }
      collect(tower, sums[t], collected + copy * count + offsets[t], parts, to.data());
    }
  return ffi::Error::Success();
}

}  // namespace dressage
