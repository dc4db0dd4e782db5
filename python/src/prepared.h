// SPDX-License-Identifier: MIT
// What conv.Filter and conv.Layer share: settings, and an object of libconv made ready with them in
// each context that runs it.
#pragma once

#include <list>
#include <string>

#include "interpreter.h"
#include "tensor.h"

namespace convpy
{

// The texts that options of libconv point to.
class Texts
{
  public:
    const char *keep(std::string text);
    const char *keep(nb::handle value);        // str(value); of None: NULL
    const char *keep_border(nb::handle value); // a number is a constant

  private:
    std::list<std::string> texts; // which stay where they are
};

// `destroy`: of libconv.
template <class Object, class Options, void (&destroy)(Object *)> class Prepared
{
  public:
    explicit Prepared(const Options &defaults) : options(defaults)
    {
    }
    virtual ~Prepared()
    {
        forget_prepared(id);
    }
    Prepared(const Prepared &) = delete;
    Prepared &operator=(const Prepared &) = delete;

  protected:
    virtual conv_status create(conv_context *context, Object **object) const = 0;

    // Throws Failure. Without the GIL.
    Object *ready(const Borrowed &context) const
    {
        auto found = context->prepared.find(id);
        if (found != context->prepared.end())
            return static_cast<Object *>(found->second.get());
        Object *object;
        context.check(create(context.get(), &object));
        context->prepared.emplace(id, std::shared_ptr<Object>(object, destroy));
        return object;
    }

    // A forced kernel may exist only for CUDA devices, so it is checked when it is used.
    void check() const
    {
        if (options.variant)
            return;
        Borrowed context(cpu, nullptr);
        Unlocked unlocked;
        ready(context);
    }

    Texts texts;
    Options options;

  private:
    const uint64_t id = new_prepared_id();
};

} // namespace convpy
