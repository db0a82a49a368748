// Reads the texts in a column of a .parquet file, row by row. A python3 child process reads the
// file with Arrow's Python package (pyarrow, on PyPI) and sends the texts through a pipe, because
// Arrow's C++ library isn't packaged for Debian 12. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/files/file.h"
#include "base/process/child_process.h"

namespace trident {

class ParquetRows {
 public:
  // RequestError if the file is missing or there is no python3.
  ParquetRows(const std::string& path, const std::string& column);

  // Reads the text of the next row; false after the last. RequestError with the file's name if
  // python3 has no pyarrow, the file isn't a .parquet file, it has no string column of that name, a
  // row has no text, or the text is longer than 64 MiB. Error if python3 ends early.
  bool next(std::string& text);

 private:
  bool fill(char* to, std::size_t count);  // false at the end of the pipe

  std::string path_;
  FileDescriptor output_;
  std::unique_ptr<ChildProcess> reader_;
  std::int64_t row_ = 0;
  bool ended_ = false;
};

}  // namespace trident
