// Renames tensors that are loaded (checkpoint.key_mapping). It corresponds to transformers'
// key_mapping but has a single kind of pattern: "*" stands for the same text in both names. These
// functions are pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trident {

// If `name` matches `from`, returns `to` with the text of its "*" inserted; otherwise nullopt.
std::optional<std::string> mapped_name(const std::string& name, const std::string& from,
                                       const std::string& to);

// The new name of each of `names`; names that match no entry of `mapping` stay. If several entries
// match, the one with the most text applies. Throws RequestErrors, with the entries' places in a
// config, if an entry applies to no name or if two tensors would get the same name.
std::map<std::string, std::string> mapped_names(const std::vector<std::string>& names,
                                                const std::map<std::string, std::string>& mapping);

}  // namespace trident
