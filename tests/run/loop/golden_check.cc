#include "tests/run/loop/golden_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/source_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

std::string directory_of(const std::string& model) {
  return source_dir() + "/tests/golden/" + model;
}

// The true gradient of GPT-2's key bias is zero, so its values are rounding errors only.
bool is_key_bias(const std::string& name, const HostTensor& tensor, std::size_t i) {
  const std::size_t third = tensor.values.size() / 3;
  return name.ends_with("attn.c_attn.bias") && i >= third && i < 2 * third;
}

}  // namespace

Golden read_golden(const std::string& model) {
  std::ifstream in(directory_of(model) + "/golden.json");
  const auto json = nlohmann::json::parse(in);
  return {json.at("losses").get<std::vector<double>>(),
          json.at("grad_norms").get<std::vector<double>>()};
}

void expect_golden(const std::string& model, const TrainingSummary& summary,
                   const std::string& directory) {
  Golden golden = read_golden(model);
  ASSERT_EQ(golden.losses.size(), 20U);
  golden.losses.resize(summary.history.size());
  golden.grad_norms.resize(summary.history.size());
  std::vector<double> norms;
  for (const IterationMetrics& m : summary.history) norms.push_back(m.grad_norm);
  EXPECT_LT(largest_relative_difference(losses_of(summary), golden.losses), 1e-5);
  EXPECT_LT(largest_relative_difference(norms, golden.grad_norms), 1e-5);

  const auto truth = read_tensors(directory_of(model) + "/gradients.safetensors");
  const auto found = read_tensors(directory + "/gradients-1.safetensors");
  EXPECT_EQ(found.size(), truth.size());
  for (const auto& [name, expected] : truth) {
    ASSERT_TRUE(found.contains(name)) << name;
    const HostTensor& got = found.at(name);
    ASSERT_EQ(got.shape, expected.shape) << name;
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      if (is_key_bias(name, expected, i)) continue;
      difference += std::pow(got.values[i] - expected.values[i], 2);
      norm += std::pow(expected.values[i], 2);
    }
    ASSERT_GT(norm, 0) << name;
    EXPECT_LT(std::sqrt(difference / norm), 1e-5) << name;
  }
}

}  // namespace trident::testing
