// The search whose pictures stand on the page, for what is done with it as a whole: a collage, saving it.

let last = null; // {request, words}: what /api/rank was asked, and what the person wrote
const followers = [];

export const lastAsked = () => last;

// null: nothing is asked
export function setAsked(asked) {
  last = asked;
  for (const follow of followers) follow(asked);
}

export const onAsked = (follow) => followers.push(follow);
