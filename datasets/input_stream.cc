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

// What decompressors share: a buffer of the file's own bytes.
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

// Members one after the other; zero bytes behind one are padding, as gzip and Python's gzip have
// it.
class GzipInput : public CompressedInput {
 public:
  explicit GzipInput(const std::string& path) : CompressedInput(path) {
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) fail("zlib can't begin");  // gzip alone
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
        if (!between_) fail("the gzip file is cut: it ends within its data");
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
  // Passes over zero bytes; false where none of another kind is in the buffer.
  bool begin_member() {
    while (stream_.avail_in > 0 && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
    if (stream_.avail_in == 0) return false;
    if (*stream_.next_in != 0x1f) fail_behind();
    if (::inflateReset(&stream_) != Z_OK) fail("zlib can't go on");
    between_ = false;
    return true;
  }
  [[noreturn]] void fail_behind() const {
    fail(
        fmt::format("behind its last member, at byte {}, come bytes that are no gzip member; cut "
                    "them off",
                    behind_));
  }

  z_stream stream_ = {};
  bool between_ = false;      // members; not at the beginning, as an empty file is none
  std::uint64_t behind_ = 0;  // where the last whole member ended; 0: none has
};

// Frames one after the other. Memory follows a frame's window, up to 2 GiB, what zstd --long=31
// makes; it is used as far as the frame reaches back.
class ZstdInput : public CompressedInput {
 public:
  explicit ZstdInput(const std::string& path)
      : CompressedInput(path), stream_(::ZSTD_createDStream(), &::ZSTD_freeDStream) {
    if (!stream_) throw Error("zstd: no memory");
    // 128 MiB otherwise, less than large public dumps have.
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
        fail("the zstd file is cut: it ends within its data");
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
          fail("behind its last frame come bytes that are no zstd frame; cut them off");
        }
        [[fallthrough]];
      default:
        fail(fmt::format("is no zstd file, or damaged: {}", ::ZSTD_getErrorName(code)));
    }
  }

  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  ZSTD_inBuffer in_ = {};
  std::size_t left_ = 0;  // of a frame
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<InputStream> open_input(const SourceFile& file) {
  if (file.compression == Compression::gzip) return std::make_unique<GzipInput>(file.path);
  if (file.compression == Compression::zstd) return std::make_unique<ZstdInput>(file.path);
  return std::make_unique<PlainInput>(file.path);
}

}  // namespace trident
