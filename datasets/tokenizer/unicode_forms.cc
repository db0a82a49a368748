#include "datasets/tokenizer/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/utf8.h"

namespace trident {
namespace {

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

int options_of(NormalForm form) {
  switch (form) {
    case NormalForm::nfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::nfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::nfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::nfkd:
      break;
  }
  return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
}

// Code points added after Unicode 9 that have decompositions or combine. `tokenizers` has the
// tables of Unicode 9, so it leaves them unchanged.
constexpr char32_t kLater[][2] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},
    {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785}, {0x10787, 0x107b0},
    {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
    {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47},
    {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97},
    {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};

bool is_later(char32_t code) {
  const auto* found =
      std::ranges::upper_bound(kLater, code, {}, [](const auto& r) { return r[0]; });
  return found != std::begin(kLater) && code <= (*std::prev(found))[1];
}

// The place of the next later code point, from `at` on; the text's size if there is none.
std::size_t next_later(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint c = next_code_point(text, at);
    if (c.code >= kLater[0][0] && is_later(c.code)) break;
    at += c.bytes;
  }
  return at;
}

void append_form(std::string_view text, NormalForm form, std::string& to) {
  if (is_ascii(text)) {  // no form changes ASCII
    to += text;
    return;
  }
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result,
                   static_cast<utf8proc_option_t>(options_of(form)));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, std::free);
  if (bytes < 0) throw Error(std::string("utf8proc: ") + utf8proc_errmsg(bytes));
  to.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(bytes));
}

}  // namespace

std::string normal_form(std::string_view text, NormalForm form) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t later = next_later(text, at);
    append_form(text.substr(at, later - at), form, result);
    at = later;
    if (at == text.size()) break;
    const std::size_t bytes = next_code_point(text, at).bytes;
    result += text.substr(at, bytes);
    at += bytes;
  }
  return result;
}

std::string lower_case(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = next_code_point(text, at);
    at += c.bytes;
    if (c.code < 0x80) {
      result += static_cast<char>(c.code >= 'A' && c.code <= 'Z' ? c.code + 32 : c.code);
    } else if (c.code == 0x130) {
      result += "i\xcc\x87";  // the only code point that becomes two
    } else {
      append_utf8(result,
                  static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    }
  }
  return result;
}

std::size_t first_grapheme(std::string_view text) {
  CodePoint last = next_code_point(text, 0);
  std::size_t at = last.bytes;
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    const CodePoint c = next_code_point(text, at);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code),
                                         static_cast<utf8proc_int32_t>(c.code), &state)) {
      break;
    }
    at += c.bytes;
    last = c;
  }
  return at;
}

}  // namespace trident
