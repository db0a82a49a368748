// Brings the parts of a checkpoint on nodes (found_on_nodes.h) to the places where ranks need them.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/files/file_system.h"
#include "checkpoint/found_on_nodes.h"
#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// While the objects of all ranks exist, this rank can read each file that it requested. If no copy
// of a file lies at this rank's place, a rank that has one sends it in messages of 16 MiB. The
// received file lies in the run's folder on this node until this object is destroyed.
class GatheredParts {
 public:
  // Collective over `group`, which has all ranks and should be a group without time-out. `context`
  // is a host context. Throws RequestError on the ranks that lack a file afterwards: it was damaged
  // or removed after it was found, or there is no space for it. The caller may then try an older
  // checkpoint. Throws Error if a file can't be read or written at this moment.
  GatheredParts(Context& context, const ProcessGroup& group, FileSystem& files,
                const Manifest& manifest, const NodeSet& set, const std::set<std::string>& needed);
  GatheredParts(const GatheredParts&) = delete;
  GatheredParts& operator=(const GatheredParts&) = delete;
  ~GatheredParts();

  // The path at which a file can be read here.
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
  std::map<std::string, std::string> paths_;  // of the received files
  std::set<std::string> own_;                 // created by this rank
};

}  // namespace trident
