// Normal forms, lower case and user-perceived characters, by utf8proc. All texts are UTF-8. Normal
// forms are those of Unicode 9, as in the `tokenizers` package: later code points stay.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trident {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

std::string normal_form(std::string_view text, NormalForm form);

// Code point by code point, without regard to what surrounds them.
std::string lower_case(std::string_view text);

// Bytes of the first extended grapheme cluster of `text`, which isn't empty (UAX 29).
std::size_t first_grapheme(std::string_view text);

}  // namespace trident
