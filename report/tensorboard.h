// Scalars, texts and hyperparameters in TensorBoard's event format. A file is a sequence of
// records: u64 length, u32 masked CRC32C of the length, data, u32 masked CRC32C of the data,
// little-endian. The data is a protobuf Event message (tensorflow/core/lib/io/record_writer.cc,
// tensorflow/core/util/event.proto, tensorboard/plugins/hparams/plugin_data.proto).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/files/file.h"

namespace trident {

// CRC-32C (Castagnoli, RFC 3720 appendix B.4), computed by table, the same on every processor.
std::uint32_t crc32c(std::span<const std::byte> bytes);

class TensorBoardWriter {
 public:
  // Creates DIRECTORY/events.out.tfevents.<time>.<host>.<pid>.<n>; the directory must exist.
  // `resume_step`: the run resumes at this step, and TensorBoard drops the data of older event
  // files from this step on.
  explicit TensorBoardWriter(const std::string& directory,
                             std::optional<std::int64_t> resume_step = {});

  // Writes one value for each tag, as fp32, at a step, without buffering. If a write fails, throws
  // Error, and the file ends with a complete record.
  void add_scalars(std::int64_t step, std::span<const std::pair<std::string, double>> scalars);

  // Writes Markdown for TensorBoard's page of texts.
  void add_text(std::int64_t step, std::string_view tag, std::string_view markdown);
  // The values that distinguish this run from others, and the tags by which runs are compared.
  using Hyperparameter = std::variant<bool, double, std::string>;
  void add_hyperparameters(const std::map<std::string, Hyperparameter>& values,
                           std::span<const std::string> metrics);

  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace trident
