#include "datasets/parquet_rows.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace trident {
namespace {

constexpr std::uint64_t kLongestRow = std::uint64_t{1} << 26;  // bytes of a row's text

// The child process writes the length of each text in 8 bytes, then the text. At the end or after a
// failure it writes 2^64 - 1 and a message; the message is empty if all went well. A few megabytes
// of the file are in memory at a time.
constexpr const char* kProgram = R"(
import sys
sys.path = [folder for folder in sys.path if folder]  # no package of the working directory
out = sys.stdout.buffer
def end(message):
    out.write((2**64 - 1).to_bytes(8, "little") + message.encode("utf-8", "replace"))
    out.flush()
    sys.exit()
try:
    import pyarrow, pyarrow.parquet
except ImportError:
    end("python3 has no pyarrow, which reads .parquet: python3 -m pip install pyarrow")
try:
    file = pyarrow.parquet.ParquetFile(sys.argv[1], buffer_size=1 << 20, pre_buffer=False)
    names = file.schema_arrow.names
    if sys.argv[2] not in names:
        end(f"has no column {sys.argv[2]!r} (data.json_key); its columns are {', '.join(names)}")
    types = pyarrow.types
    kind = file.schema_arrow.field(sys.argv[2]).type
    # Categories, as pandas writes them, and views are strings in another form.
    of = kind.value_type if types.is_dictionary(kind) else kind
    is_view = getattr(types, "is_string_view", lambda _: False)
    if not (types.is_string(of) or types.is_large_string(of) or is_view(of)):
        end(f"column {sys.argv[2]!r} has {kind}, not strings")
    row = 0
    for batch in file.iter_batches(batch_size=16, columns=[sys.argv[2]]):
        column = batch.column(0)
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if is_view(column.type):
            column = column.cast(pyarrow.large_string())
        for value in column:
            row += 1
            text = value.as_buffer()
            if text is None:
                end(f"row {row}: has no text")
            out.write(len(text).to_bytes(8, "little"))
            out.write(text)
except BrokenPipeError:
    sys.exit()
except Exception as error:
    end(f"can't be read: {error}")
end("")
)";

}  // namespace

ParquetRows::ParquetRows(const std::string& path, const std::string& column) : path_(path) {
  ReadFile whether_it_is_there(path);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_file_error(path, "pipe", errno);
  output_ = FileDescriptor(ends[0]);
  const FileDescriptor input(ends[1]);
  reader_ = std::make_unique<ChildProcess>(
      std::vector<std::string>{"python3", "-c", kProgram, path, column}, input.get());
}

bool ParquetRows::fill(char* to, std::size_t count) {
  for (std::size_t done = 0; done < count;) {
    const ssize_t n = ::read(output_.get(), to + done, count - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error(path_, "reading from python3", errno);
    if (n == 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

bool ParquetRows::next(std::string& text) {
  if (ended_) return false;
  std::uint64_t size = 0;
  if (!fill(reinterpret_cast<char*>(&size), sizeof size)) {
    const auto end = reader_->wait(std::chrono::seconds(10));
    throw Error(fmt::format("{}: python3 ended early, with code {}", path_, end ? end->code : -1));
  }
  if (size == ~std::uint64_t{0}) {
    ended_ = true;
    std::string message;
    for (char c = 0; message.size() < 2000 && fill(&c, 1);) message += c;
    if (!message.empty()) {
      throw RequestError(fmt::format("{}: {}", path_, printable(message, 1000)));
    }
    return false;
  }
  if (size > kLongestRow) {
    throw RequestError(fmt::format("{}: row {}: the text is longer than {} MiB", path_, row_ + 1,
                                   kLongestRow >> 20));
  }
  ++row_;
  text.resize(size);
  if (!fill(text.data(), size)) throw Error(path_ + ": python3 ended within a row");
  return true;
}

}  // namespace trident
