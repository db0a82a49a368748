// metrics.jsonl: one JSON object a line, one line an iteration, keys in the order given. Doubles
// are written in the fewest digits that read back exactly; JSON has no NaN or infinity, so those
// are written as null.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/files/file.h"

namespace trident {

class MetricsFile {
 public:
  static constexpr const char* kName = "metrics.jsonl";

  // A new run in `directory`, which must exist. If it holds metrics.jsonl already: RequestError,
  // unless `overwrite`, which empties the file.
  static MetricsFile create(const std::string& directory, bool overwrite);
  // The refusal alone.
  static void require_free(const std::string& directory, bool overwrite);
  // A run that goes on after `iteration`: lines of later iterations, and a last line without its
  // end, are cut off. The file may be missing. A damaged line before that is a RequestError.
  static MetricsFile resume(const std::string& directory, std::int64_t iteration);
  // The refusal alone. How many iterations up to that one have no line, from the first one that
  // has.
  static std::int64_t require_resumable(const std::string& directory, std::int64_t iteration);

  // `line` is an object with an integer "iteration". On a failed write (full disk): Error, and the
  // file ends with the last whole line.
  void append(const nlohmann::ordered_json& line);
  void sync() { file_.sync(); }
  const std::string& path() const { return file_.path(); }

 private:
  MetricsFile(const std::string& path, bool truncate) : file_(path, truncate) {}
  AppendFile file_;
};

// All lines of a metrics.jsonl. RequestError, naming file and line, if one is no JSON object with
// an integer "iteration", or the last one has no end; `growing`: such a one is still being written,
// or was when the run was killed, and is left out.
std::vector<nlohmann::ordered_json> read_metrics(const std::string& path, bool growing = false);

}  // namespace trident
