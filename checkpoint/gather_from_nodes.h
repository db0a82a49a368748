// Brings the parts of a checkpoint on the nodes (found_on_nodes.h) to where ranks need them.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/files/file_system.h"
#include "checkpoint/found_on_nodes.h"
#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// While all ranks' live each file that this rank has asked for can be read here. One that no
// process here has is sent by one that has it, 16 MiB at a time, and lies beside the others until
// this goes.
class GatheredParts {
 public:
  // Collective over `group`, of all ranks, whose waits should be patient; `context` is one of the
  // host. RequestError on ranks that lack a file then: it was damaged or removed since it was
  // found, or there is no room for it; an older checkpoint may do. Error where it can't be read or
  // written at this moment.
  GatheredParts(Context& context, const ProcessGroup& group, FileSystem& files,
                const Manifest& manifest, const NodeSet& set, const std::set<std::string>& needed);
  GatheredParts(const GatheredParts&) = delete;
  GatheredParts& operator=(const GatheredParts&) = delete;
  ~GatheredParts();

  // Where a file can be read.
  std::string path(const std::string& file) const;

 private:
  struct Transfer;
  void gather(Context&, const ProcessGroup& group, const std::set<std::string>& needed);
  void remove_own() noexcept;
  void transfer(Context&, const ProcessGroup& group, const Transfer&, std::string& damage,
                std::string& failure);
  std::string fetched(const std::string& file, int receiver) const;

  FileSystem& files_;
  const Manifest& manifest_;
  const NodeSet& set_;
  std::map<std::string, std::string> paths_;  // of files that were sent here
  std::set<std::string> own_;                 // folders that this rank has made
};

}  // namespace trident
