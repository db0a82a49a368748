// Checks of a group operation's arguments on the host, before anything is enqueued. Each check
// throws a RequestError that names the operation, the group and the argument.
#pragma once

#include <memory>
#include <string>

#include "core/tensor.h"
#include "parallel/process_group_impl.h"

namespace trident {

using GroupHandle = std::shared_ptr<ProcessGroup::Impl>;

// "all_reduce on group 'tensor' (ranks 0,1)".
std::string place(const GroupHandle& group, const char* operation);

// The group, and the tensor, must be defined.
void need(const GroupHandle& group, const char* operation);
void need(const GroupHandle& group, const char* operation, const char* argument,
          const Tensor& tensor);
// `full` must hold one part of `part`'s size for each member, in the same dtype.
void need_parts(const GroupHandle& group, const char* operation, const char* full_name,
                const Tensor& full, const char* part_name, const Tensor& part);
void need_member(const GroupHandle& group, const char* operation, const char* argument, int rank);
// The transport must carry tensors of the context's device.
void need_reach(const GroupHandle& group, const char* operation, Context& context);
void need_support(const GroupHandle& group, const char* operation, ReduceOp op, DType dtype);

}  // namespace trident
