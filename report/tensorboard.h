// Scalars, texts and hyperparameters in TensorBoard's event format: records of u64 length, u32
// masked CRC32C of the length, data, u32 masked CRC32C of the data, little-endian; the data is a
// protobuf Event message (tensorflow/core/lib/io/record_writer.cc,
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

// CRC-32C (Castagnoli, RFC 3720 appendix B.4) by table, the same on every processor.
std::uint32_t crc32c(std::span<const std::byte> bytes);

class TensorBoardWriter {
 public:
  // Creates DIRECTORY/events.out.tfevents.<time>.<host>.<pid>.<n>; the directory must exist.
  // `resume_step`: the run goes on from this step, so TensorBoard forgets what older event files
  // hold from it on.
  explicit TensorBoardWriter(const std::string& directory,
                             std::optional<std::int64_t> resume_step = {});

  // One value for each tag, as fp32, at a step. Written through at once. A failed write is an
  // Error and leaves the file ending with a whole record.
  void add_scalars(std::int64_t step, std::span<const std::pair<std::string, double>> scalars);

  // Markdown, for the page of texts.
  void add_text(std::int64_t step, std::string_view tag, std::string_view markdown);
  // What tells this run from others, and the tags by which they are compared.
  using Hyperparameter = std::variant<bool, double, std::string>;
  void add_hyperparameters(const std::map<std::string, Hyperparameter>& values,
                           std::span<const std::string> metrics);

  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace trident
