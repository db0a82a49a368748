// HTML pages that need no network. A page has a style and a script, made of the files in
// report/page, and JSON that the script draws.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trident {

struct PageFiles {
  std::string_view style, script;
};
extern const PageFiles report_page, sweep_page;

// `body` is HTML, `title` is text. `data` are pairs: the id of an element, and the JSON text that
// it holds.
std::string html_page(const std::string& title, const PageFiles&, const std::string& body,
                      const std::vector<std::pair<std::string, std::string>>& data);

}  // namespace trident
