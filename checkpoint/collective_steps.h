// The steps that ranks take together, such as those of a save: a step that fails on one rank ends
// the sequence on all of them.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"
#include "checkpoint/exchanged_texts.h"
#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// Runs `action`; gives the reason where it fails, else "". A CommunicationError is thrown on: the
// other ranks know of it.
template <class Action>
std::string attempt(const Action& action) {
  try {
    action();
    return "";
  } catch (const CommunicationError&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The functions are collective over the group, which outlives the object.
class CollectiveSteps {
 public:
  CollectiveSteps(Context& context, const ProcessGroup& group) : context_(context), group_(group) {}

  // Runs `action` on this rank. Whether it succeeded on all ranks.
  template <class Action>
  bool take(const Action& action) {
    return agree(attempt(action));
  }
  // The same for a step that has been run: `own` is this rank's reason for failing, or "".
  bool agree(const std::string& own) {
    failure_ = agreed_failure(context_, group_, own);
    return failure_.empty();
  }
  // The reasons of the step that failed, a line for each rank that names it.
  const std::string& failure() const { return failure_; }

 private:
  Context& context_;
  const ProcessGroup& group_;
  std::string failure_;
};

}  // namespace trident
