// The texts of a column of a .parquet file, row by row. Arrow reads them: its C++ library isn't
// packaged for Debian 12, its Python package (pyarrow) is on PyPI, so a python3 that has it does,
// and sends them through a pipe.
#pragma once

#include <memory>
#include <string>

#include "base/files/file.h"
#include "base/process/child_process.h"

namespace trident {

class ParquetRows {
 public:
  // RequestError where there is no python3.
  ParquetRows(const std::string& path, const std::string& column);

  // The next row's text; false after the last. RequestError with the file's name where python3 has
  // no pyarrow, the file is none, or has no such column of strings.
  bool next(std::string& text);

 private:
  bool fill(char* to, std::size_t count);  // false at the end

  std::string path_;
  FileDescriptor output_;
  std::unique_ptr<ChildProcess> reader_;
  std::int64_t row_ = 0;
  bool ended_ = false;
};

}  // namespace trident
