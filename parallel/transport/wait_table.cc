#include "parallel/transport/wait_table.h"

#include <set>

namespace trident {

std::string text_of_waits(int late, const std::function<int(int)>& waits_for) {
  std::string text;
  std::set<int> seen{late};
  for (int at = late, next = waits_for(at); next != no_rank; at = next, next = waits_for(at)) {
    text += at == late ? "; rank " + std::to_string(late) : ", which";
    if (next == no_answer) return text + " does not answer";
    if (next == works_on_files) return text + " works on files";
    text += " waits for rank " + std::to_string(next);
    if (!seen.insert(next).second) break;
  }
  return text;
}

}  // namespace trident
