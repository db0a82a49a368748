// The 64-bit hash (xxHash's XXH3) by which contents that should be equal are compared: of files on
// different hosts, of weights on different ranks. No protection against somebody who wants a
// collision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trident {

// `seed`: the hash of what comes before.
std::uint64_t content_hash(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t content_hash(std::string_view text);

// Of a file's size and contents: of all of it up to `whole` bytes; of a larger one its beginning,
// its end and blocks of 1 MiB at even distances between them, `whole` bytes together. RequestError
// where it can't be read.
std::uint64_t content_hash_of_file(const std::string& path,
                                   std::uint64_t whole = std::uint64_t{1} << 30);

}  // namespace trident
