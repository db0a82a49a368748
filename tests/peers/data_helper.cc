// Exposes our data and file code to data_peer.py, which compares it with other programs, without a
// training run.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "datasets/indexed_source.h"
#include "datasets/interleave.h"
#include "formats/hugging_face/safetensors.h"
#include "report/tensorboard.h"

namespace trident {
namespace {

// Prints all tokens, read in chunks of odd sizes.
void tokens(const std::string& prefix, std::int64_t vocab_size) {
  const IndexedSource source(prefix, vocab_size);
  std::int64_t piece = 1;
  for (std::int64_t begin = 0; begin < source.size(); begin += piece, piece += 2) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(std::min(piece, source.size() - begin)));
    source.read(begin, out);
    for (const auto token : out) fmt::print("{}\n", token);
  }
}

// Reads every tensor of a file and writes it to another, row by row, last row first.
void copy_safetensors(const std::string& from, const std::string& to) {
  const SafetensorsFile file(from);
  std::vector<TensorDeclaration> declared;
  for (const auto& entry : file.tensors()) {
    declared.push_back({entry.name, entry.dtype.value(), entry.shape});
  }
  SafetensorsWriter writer(to, declared, file.metadata());
  for (const auto& entry : file.tensors()) {
    if (entry.rows() == 0) continue;
    std::vector<std::byte> row(entry.bytes() / static_cast<std::uint64_t>(entry.rows()));
    for (std::int64_t i = entry.rows(); i-- > 0;) {
      file.read_rows(entry, i, 1, row);
      writer.write_rows(entry.name, i, 1, row);
    }
  }
  writer.finish();
}

// Writes a record for each line "step tag value" of standard input, after a text and three
// hyperparameters.
void events(const std::string& directory, std::optional<std::int64_t> resume_step) {
  TensorBoardWriter writer(directory, resume_step);
  writer.add_text(resume_step.value_or(0), "config", "    {\"größe\": 1}");
  const std::vector<std::string> metrics{"train/loss", "learning_rate"};
  writer.add_hyperparameters(
      {{"optimizer.params.lr", 0.25}, {"model.tied", true}, {"type", "AdamW"}}, metrics);
  std::int64_t step;
  std::pair<std::string, double> scalar;
  while (std::cin >> step >> scalar.first >> scalar.second) {
    writer.add_scalars(step, std::span(&scalar, 1));
  }
}

void interleave(std::int64_t samples, std::span<char* const> weights) {
  std::vector<double> values;
  for (const char* weight : weights) values.push_back(std::stod(weight));
  Interleave order(values);
  for (std::int64_t i = 0; i < samples; ++i) {
    const auto draw = order.at(i);
    fmt::print("{} {}\n", draw.source, draw.index);
  }
}

int run(std::span<char* const> arguments) {
  const std::string command = arguments.size() > 1 ? arguments[1] : "";
  if (command == "tokens" && arguments.size() == 4) {
    tokens(arguments[2], std::stoll(arguments[3]));
  } else if (command == "copy-safetensors" && arguments.size() == 4) {
    copy_safetensors(arguments[2], arguments[3]);
  } else if (command == "events" && arguments.size() == 3) {
    events(arguments[2], {});
  } else if (command == "events" && arguments.size() == 4) {
    events(arguments[2], std::stoll(arguments[3]));
  } else if (command == "interleave" && arguments.size() > 3) {
    interleave(std::stoll(arguments[2]), arguments.subspan(3));
  } else {
    fmt::print(stderr,
               "usage: data_helper tokens PREFIX VOCAB | copy-safetensors IN OUT |\n"
               "       events DIRECTORY [RESUME_STEP] | interleave SAMPLES WEIGHT...\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  try {
    return trident::run(std::span(argv, static_cast<std::size_t>(argc)));
  } catch (const std::exception& error) {
    fmt::print(stderr, "data_helper: {}\n", error.what());
    return 2;
  }
}
