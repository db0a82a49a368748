// A 64-bit hash (xxHash's XXH3) for comparing contents that should be equal: files on different
// hosts, weights on different ranks. It does not protect against a deliberate collision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trident {

// `seed`: the hash of the preceding contents.
std::uint64_t content_hash(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t content_hash(std::string_view text);

// The hash of a file's size and contents. A file of up to `whole` bytes is hashed completely. Of a
// larger file, the hash covers its beginning, its end and blocks of 1 MiB at even distances between
// them, `whole` bytes together. Throws RequestError if the file can't be read.
std::uint64_t content_hash_of_file(const std::string& path,
                                   std::uint64_t whole = std::uint64_t{1} << 30);

}  // namespace trident
