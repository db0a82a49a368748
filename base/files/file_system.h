// The operations on files that must not be lost, behind an interface: a test can simulate a full,
// slow or broken disk. Every failure throws an Error that names the path, the operation and the
// system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trident {

// A file that is open for writing. It closes itself on destruction.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  // Writes all of `bytes`, by finish() at the latest, which may then report the failure. Several
  // threads, and several objects for one file, may write at once to ranges that don't overlap.
  virtual void write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Syncs to the disk, then closes. Some file systems report a failed write only here.
  virtual void finish() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Makes a directory, with its missing parents. Throws Error if it exists.
  virtual void make_directory(const std::string& path) = 0;
  // Creates a file of `bytes` bytes. Its disk blocks are allocated at once if the disk supports
  // this, so that a full disk is found before any write.
  virtual std::unique_ptr<OutputFile> create(const std::string& path, std::uint64_t bytes) = 0;
  // Opens an existing file for writing.
  virtual std::unique_ptr<OutputFile> open(const std::string& path) = 0;
  // Replaces an existing file at `to`. If both are directories, they are exchanged, in one step if
  // the file system supports this. In either case the directory that was at `to` is at `from`
  // afterwards.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, or a directory with its contents. Does nothing if `path` doesn't exist.
  virtual void remove(const std::string& path) = 0;
  // Makes changes of this directory durable: files made, renamed or removed. A file system that
  // can't do this is no failure.
  virtual void sync_directory(const std::string& path) = 0;

  // create(), write_at() and finish() in one call.
  void write(const std::string& path, std::string_view contents);
  // The same under a temporary name, which is then renamed to `path`.
  void replace(const std::string& path, std::string_view contents);
};

// The file system of this machine.
FileSystem& real_files();

}  // namespace trident
