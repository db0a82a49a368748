// Unicode functions, with utf8proc: normal forms, lower case and grapheme clusters. All texts must
// be UTF-8. Normal forms are those of Unicode 9, as in the `tokenizers` package: later code points
// stay unchanged. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trident {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

std::string normal_form(std::string_view text, NormalForm form);

// Converts each code point on its own, without regard to its neighbours.
std::string lower_case(std::string_view text);

// Returns the bytes of the first extended grapheme cluster (UAX 29) of `text`, which must not be
// empty.
std::size_t first_grapheme(std::string_view text);

}  // namespace trident
