// HTML pages that need no network: a style and a script out of the files in report/page,
// and JSON that the script draws.
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

// `body` is HTML, `title` text; `data` are JSON texts by the ids of the elements that hold them.
std::string html_page(const std::string& title, const PageFiles&, const std::string& body,
                      const std::vector<std::pair<std::string, std::string>>& data);

}  // namespace trident
