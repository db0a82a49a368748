// Finds the files that a path of data.train names: a file, a .bin/.idx pair by its common prefix, a
// folder with all of its files, or a pattern with * ? [ ].
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trident {

// The format and compression of a file, by the end of its name.
enum class DocumentFormat { text, json_lines, parquet };
enum class Compression { none, gzip, zstd };

struct SourceFile {
  std::string path;
  DocumentFormat format = DocumentFormat::text;
  Compression compression = Compression::none;
};
// Never fails: .jsonl, .ndjson and .json are lines of JSON, .parquet is Parquet, every other name
// is text. .gz or .zst may follow.
SourceFile source_file(const std::string& path);

// Hashes of the file contents that this process has read. The key identifies a state of a file:
// path, inode, size and times.
using KnownHashes = std::map<std::string, std::string>;

struct SourceFiles {
  std::vector<std::string> pairs;  // prefixes of .bin/.idx pairs; `files` is then empty
  std::vector<SourceFile> files;   // sorted by path
  std::vector<std::string> left;   // files of a folder that are left out: other formats
};

// A folder and its subfolders give .txt, .jsonl, .ndjson and .parquet files and pairs. Names that
// begin with a dot are skipped, and so are folders with a CACHEDIR.TAG, such as token caches.
// RequestError if the path gives no data, both pairs and texts, or is ambiguous.
SourceFiles find_source_files(const std::string& path);

// The progress of reading files.
struct ReadingProgress {
  std::uint64_t read = 0, total = 0;  // bytes
  double seconds = 0;
  bool ends = false;  // this is the last report
};

}  // namespace trident
