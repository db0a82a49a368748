// Other names for tensors that are loaded (checkpoint.key_mapping), as transformers' key_mapping
// gives them, but with one kind of pattern: "*" stands for the same text in both names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trident {

// `to` where `name` is `from`, the text of its "*" put in; nothing where it isn't.
std::optional<std::string> mapped_name(const std::string& name, const std::string& from,
                                       const std::string& to);

// The new name of each of `names`, its own where no entry of `mapping` is about it; of several the
// one with the most text. RequestErrors, with the entries' places in a config, where one is
// about none of them, and where two tensors would have one name.
std::map<std::string, std::string> mapped_names(const std::vector<std::string>& names,
                                                const std::map<std::string, std::string>& mapping);

}  // namespace trident
