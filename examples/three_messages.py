"""The least there is: three messages in, the request for any API out. Runs offline."""

import backstory

messages = [
    {"role": "system", "content": "You are a travel agent. Answer in one sentence."},
    {"role": "user", "content": "I live in Zürich. Where can I swim?"},
    {"role": "user", "content": "And in winter?"},
]

fitted = backstory.fit(messages, budget=8_000, target="openai_chat")
print(
    fitted.body["messages"]
)  # what the client sends: client.chat.completions.create(**fitted.body, model=…)
print(fitted.ledger)  # where the tokens went
for repair in fitted.repairs:  # what was healed: two user messages in a row, which strict servers refuse
    print(f"message {repair.index}: {repair.what}")

print(backstory.fit(messages, budget=8_000, target="anthropic").body)  # the same for another API
