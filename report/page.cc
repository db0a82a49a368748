#include "report/page.h"

#include <fmt/format.h>

#include "base/escape_xml.h"

namespace trident {
namespace {

// Escapes JSON for a script element, so that no text in it can end the element. "<" is no part of
// JSON's own syntax.
std::string in_script(const std::string& json) {
  std::string safe;
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string html_page(const std::string& title, const PageFiles& files, const std::string& body,
                      const std::vector<std::pair<std::string, std::string>>& data) {
  std::string scripts;
  for (const auto& [id, json] : data) {
    scripts += fmt::format("<script type=\"application/json\" id=\"{}\">{}</script>\n", id,
                           in_script(json));
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>{0}</title>\n<style>\n{1}</style></head>\n<body><h1>{0}</h1>\n"
      "<noscript><p>The pictures of this page are drawn by its script.</p></noscript>\n"
      "{2}{3}<script>\n{4}</script></body></html>\n",
      escape_xml(title), files.style, body, scripts, files.script);
}

}  // namespace trident
