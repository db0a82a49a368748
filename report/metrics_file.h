// metrics.jsonl: one JSON object a line, one line an iteration, keys in the order given. Doubles
// are written in the fewest digits that read back exactly. JSON has no NaN or infinity; these are
// written as null.
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

  // Creates the file of a new run in `directory`, which must exist. If metrics.jsonl exists
  // already, throws RequestError or, with `overwrite`, empties it.
  static MetricsFile create(const std::string& directory, bool overwrite);
  // Throws the RequestError of create(), but changes no file.
  static void require_free(const std::string& directory, bool overwrite);
  // Opens the file of a run that resumes after `iteration`. Lines of later iterations, and an
  // incomplete last line, are cut off. The file may be missing. A damaged line before that is a
  // RequestError.
  static MetricsFile resume(const std::string& directory, std::int64_t iteration);
  // Throws the RequestError of resume(), but changes no file. Returns the number of iterations up
  // to `iteration` that have no line, counted from the first iteration that has a line.
  static std::int64_t require_resumable(const std::string& directory, std::int64_t iteration);

  // `line` is an object with an integer "iteration". If the write fails (full disk), throws Error,
  // and the file ends with the last complete line.
  void append(const nlohmann::ordered_json& line);
  void sync() { file_.sync(); }
  const std::string& path() const { return file_.path(); }

 private:
  MetricsFile(const std::string& path, bool truncate) : file_(path, truncate) {}
  AppendFile file_;
};

// All lines of a metrics.jsonl. Throws RequestError, with file and line, if a line is no JSON
// object with an integer "iteration", or if the last line is incomplete. With `growing`, an
// incomplete last line is left out: it is still being written, or it was when the run was killed.
std::vector<nlohmann::ordered_json> read_metrics(const std::string& path, bool growing = false);

}  // namespace trident
