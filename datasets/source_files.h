// The files that a path of data.train names: a file, a .bin/.idx pair by its common prefix, a
// folder with all that it holds, or a pattern with * ? [ ].
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trident {

// What a file is read as, by the end of its name.
enum class DocumentFormat { text, json_lines, parquet };
enum class Compression { none, gzip, zstd };

struct SourceFile {
  std::string path;
  DocumentFormat format = DocumentFormat::text;
  Compression compression = Compression::none;
};
// Any file: lines of JSON (.jsonl, .ndjson, .json), .parquet, or text; .gz and .zst after them.
SourceFile source_file(const std::string& path);

// Of contents that this process has read, by what tells one state of a file from others.
using KnownHashes = std::map<std::string, std::string>;

struct SourceFiles {
  std::vector<std::string> pairs;  // prefixes of .bin/.idx pairs; then there are no files
  std::vector<SourceFile> files;   // sorted by path
  std::vector<std::string> left;   // of a folder: files of other kinds
};

// RequestError where there is nothing, or pairs are beside texts. In a folder, and those in it, are
// taken .txt, .jsonl, .ndjson, .parquet and pairs; names that begin with a dot are passed over, and
// folders with a CACHEDIR.TAG, as those of tokens are.
SourceFiles find_source_files(const std::string& path);

// How far files have been read.
struct ReadingProgress {
  std::uint64_t read = 0, total = 0;  // bytes
  double seconds = 0;
  bool ends = false;  // it is the last one
};

}  // namespace trident
