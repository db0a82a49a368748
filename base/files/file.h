// Files: read-only memory maps, positioned reads, and writes that leave no half-written file. If a
// path can't be read, a RequestError is thrown (an input is wrong). An Error is thrown if the
// system lacks a resource, if a file server doesn't answer, or if a write fails. Messages name the
// file, the operation and the system's reason. All types close their files on destruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trident {

// Throws Error "path: operation failed: reason", with the system's text for the errno `code`.
// Throws NoRoom if the disk or the quota is full.
[[noreturn]] void throw_file_error(const std::string& path, std::string_view operation, int code);

class NoRoom : public Error {
 public:
  using Error::Error;
};

// Whether `path` is a directory of this user, and not a link to a directory.
bool is_own_directory(const std::string& path);
// The same, and no other user may write to it.
bool is_private_directory(const std::string& path);
// Makes a directory that only this user may enter, with its missing parents, unless it exists.
// Throws Error if it can't be made, or if it exists and is not private.
void make_own_directory(const std::string& path);

// An open file descriptor, closed on destruction. Moves, never copies.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

// A regular file for reading at any position. Safe to use from several threads at once.
class ReadFile {
 public:
  explicit ReadFile(const std::string& path);

  // Fills `out` from byte `offset` on. Throws RequestError if the file ends earlier or the disk
  // can't read the bytes (EIO).
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;
  // Hints that these bytes will be read, so that the system may read ahead. Doesn't wait.
  void will_read(std::uint64_t offset, std::uint64_t count) const noexcept;
  std::uint64_t size() const { return size_; }  // bytes, when it was opened
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::uint64_t size_ = 0;  // before file_, whose opening sets it
  FileDescriptor file_;
};

// A regular file mapped into memory, read-only. An empty file gives an empty span. The file must
// not be truncated while it is mapped (the kernel would end the process with SIGBUS).
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// The contents of a file. Throws RequestError if the file has more than `max_bytes` bytes.
std::string read_file(const std::string& path, std::uint64_t max_bytes = std::uint64_t{1} << 32);
// The same for a path from a command line, which may also be a pipe. Waits for the writer of the
// pipe.
std::string read_stream(const std::string& path, std::uint64_t max_bytes);
std::string read_standard_input(std::uint64_t max_bytes);

// A file that appears under its name only when it is complete. It is written without a name or, if
// the file system can't do that, under a temporary name next to the target; commit() renames it.
// Without commit() it is deleted, so an exception leaves the target as it was.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  // Appends after the bytes of the last write().
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Writes at a position; gaps read as zeros. Several threads may call it at once.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // fsync, rename over the target, fsync of the directory. Call it once, after all writes. If
  // `replaces` is false, throws Error if a file of that name exists by then.
  void commit(bool replaces = true);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string temporary_;  // "": it has no name, or has been committed
  FileDescriptor file_;
  std::uint64_t position_ = 0;
};

// Syncs a directory to the disk, so that files that were made, renamed or removed in it stay so
// ("": the working directory). A file system that can't do this is no failure.
void sync_directory(const std::string& path);

void write_file_atomic(const std::string& path, std::string_view contents);
// The same for a `path` that is a regular file or doesn't exist yet. For a link, the target is
// replaced, not the link. A device or a pipe is written to directly.
void write_file(const std::string& path, std::string_view contents);

// Appends records completely or not at all. If a record can't be written, its written part is cut
// off again and an Error is thrown, so the file always ends with a complete record.
class AppendFile {
 public:
  // Creates the file if it is missing. Keeps its contents unless `truncate`.
  explicit AppendFile(const std::string& path, bool truncate = false);

  void append(std::span<const std::byte> record);
  void append(std::string_view record);
  // Syncs the file to the disk (fsync).
  void sync();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileDescriptor file_;
};

// Throws the RequestError of require_output_directory(), as far as the problem can be found without
// writing.
void check_output_directory(const std::string& path);

// Makes `path` a writable directory, with its parents, and verifies this by creating and removing a
// file there. Otherwise throws RequestError (the request names an unusable place).
void require_output_directory(const std::string& path);

// Calls require_output_directory(). The destructor, or a failed constructor, removes the
// directories that it made, unless they contain files by then or another process has locked them
// (flock).
class NewDirectories {
 public:
  explicit NewDirectories(const std::string& path);
  NewDirectories(NewDirectories&&) noexcept = default;
  NewDirectories& operator=(NewDirectories&&) = delete;
  ~NewDirectories();

 private:
  NewDirectories() = default;

  std::vector<std::string> made_;  // deepest first
};

}  // namespace trident
