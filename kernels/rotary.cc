#include "kernels/rotary.h"

#include <string>

#include "kernels/attention_check.h"
#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {

void rotary(Context& context, const RotaryArgs& args) {
  const Check check("rotary");
  check_projection(check, args.shape, args.qkv, "qkv");
  check.that(args.shape.head_dim % 2 == 0, "head_dim " + std::to_string(args.shape.head_dim),
             "an even number");
  check.that(args.begin >= 0 && args.begin + args.shape.sequence <= args.tabulated(),
             "positions " + std::to_string(args.begin) + " to " +
                 std::to_string(args.begin + args.shape.sequence),
             "up to " + std::to_string(args.tabulated()));
  launch(context, &Backend::rotary, args);
}

}  // namespace trident
