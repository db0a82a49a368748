#include "datasets/input_stream.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>

#include "base/error.h"
#include "base/files/file.h"

namespace trident {
namespace {

class PlainInput : public InputStream {
 public:
  explicit PlainInput(const std::string& path) : file_(path) {}
  std::size_t read(std::span<char> out) override {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), file_.size() - position_));
    file_.read_at(position_, std::as_writable_bytes(out.first(count)));
    position_ += count;
    file_.will_read(position_, std::min<std::uint64_t>(4 * out.size(), file_.size() - position_));
    return count;
  }
  std::uint64_t position() const override { return position_; }
  const std::string& path() const { return file_.path(); }

 private:
  ReadFile file_;
  std::uint64_t position_ = 0;
};

// The base of the decompressors: a buffer of compressed bytes.
class CompressedInput : public InputStream {
 public:
  explicit CompressedInput(const std::string& path) : file_(path), buffer_(1 << 18) {}
  std::uint64_t position() const override { return file_.position(); }

 protected:
  std::size_t refill() { return file_.read(buffer_); }
  char* buffer() { return buffer_.data(); }
  const std::string& path() const { return file_.path(); }
  [[noreturn]] void fail(std::string_view problem) const {
    throw RequestError(fmt::format("{}: {}", file_.path(), problem));
  }

 private:
  PlainInput file_;
  std::vector<char> buffer_;
};

// Reads concatenated gzip members. Zero bytes after a member are padding, as for gzip and Python's
// gzip.
class GzipInput : public CompressedInput {
 public:
  explicit GzipInput(const std::string& path) : CompressedInput(path) {
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) fail("zlib can't begin");  // only gzip, not zlib
  }
  ~GzipInput() override { ::inflateEnd(&stream_); }

  std::size_t read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), 1u << 30));
    const uInt asked = stream_.avail_out;
    while (stream_.avail_out > 0) {
      if (stream_.avail_in == 0) {
        stream_.next_in = reinterpret_cast<Bytef*>(buffer());
        stream_.avail_in = static_cast<uInt>(refill());
      }
      if (stream_.avail_in == 0) {
        if (!between_) fail("the gzip file is truncated: it ends within its data");
        break;
      }
      if (between_ && !begin_member()) continue;
      const int code = ::inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        between_ = true;  // another member may follow
        behind_ = position() - stream_.avail_in;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        if (behind_ > 0 && stream_.total_in < 4) fail_behind();
        fail(fmt::format("is no gzip file, or damaged: {}",
                         stream_.msg != nullptr ? stream_.msg : "zlib gives no reason"));
      }
    }
    return asked - stream_.avail_out;
  }

 private:
  // Skips zero bytes; false if the buffer has only zero bytes.
  bool begin_member() {
    while (stream_.avail_in > 0 && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
    if (stream_.avail_in == 0) return false;
    if (*stream_.next_in != 0x1f) fail_behind();
    if (::inflateReset(&stream_) != Z_OK) fail("zlib can't begin the next member");
    between_ = false;
    return true;
  }
  [[noreturn]] void fail_behind() const {
    fail(
        fmt::format("after its last member, at byte {}, come bytes that are no gzip member; remove "
                    "them",
                    behind_));
  }

  z_stream stream_ = {};
  bool between_ = false;      // between members; false at first: an empty file is no gzip file
  std::uint64_t behind_ = 0;  // the end of the last complete member; 0: none yet
};

// Reads concatenated zstd frames. It takes as much memory as a frame's window, up to the 2 GiB of
// zstd --long=31, but touches only as much as the frame reaches back.
class ZstdInput : public CompressedInput {
 public:
  explicit ZstdInput(const std::string& path)
      : CompressedInput(path), stream_(::ZSTD_createDStream(), &::ZSTD_freeDStream) {
    if (!stream_) throw Error("zstd: no memory");
    // The default is 128 MiB; large public dumps have larger windows.
    ::ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax,
                             ::ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }

  std::size_t read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos < to.size) {
      if (in_.pos == in_.size) in_ = {buffer(), refill(), 0};
      if (in_.size == 0 && left_ == 0 && begun_) break;
      const bool ended = in_.size == 0;
      const std::size_t before = to.pos;
      const std::size_t code = ::ZSTD_decompressStream(stream_.get(), &to, &in_);
      if (::ZSTD_isError(code) != 0) fail_with(code);
      begun_ = true;
      left_ = code;
      if (ended && to.pos == before && left_ != 0) {
        fail("the zstd file is truncated: it ends within its data");
      }
    }
    return to.pos;
  }

 private:
  [[noreturn]] void fail_with(std::size_t code) const {
    switch (::ZSTD_getErrorCode(code)) {
      case ZSTD_error_frameParameter_windowTooLarge:
        fail(
            "needs a window of more than 2 GiB, which this zstd library doesn't read; compress it "
            "again with zstd --long=31 or less");
      case ZSTD_error_memory_allocation:
        throw Error(
            fmt::format("{}: there is no memory for its window, of up to 2 GiB; compress "
                        "it again with zstd --long=27 or less",
                        path()));
      case ZSTD_error_prefix_unknown:
        if (begun_ && left_ == 0) {
          fail("after its last frame come bytes that are no zstd frame; remove them");
        }
        [[fallthrough]];
      default:
        fail(fmt::format("is no zstd file, or damaged: {}", ::ZSTD_getErrorName(code)));
    }
  }

  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  ZSTD_inBuffer in_ = {};
  std::size_t left_ = 0;  // ZSTD_decompressStream's result; 0: a frame is complete
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<InputStream> open_input(const SourceFile& file) {
  if (file.compression == Compression::gzip) return std::make_unique<GzipInput>(file.path);
  if (file.compression == Compression::zstd) return std::make_unique<ZstdInput>(file.path);
  return std::make_unique<PlainInput>(file.path);
}

}  // namespace trident
