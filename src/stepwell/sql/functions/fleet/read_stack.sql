-- Read the answer to a request for a stack, and delete both; null: there is none yet. _last: the caller does not ask
-- again, so the request is deleted without an answer, too.
create or replace function stepwell.read_stack(_request uuid, _last boolean default false) returns text
language plpgsql volatile security definer
as $$
declare
  _answer text;
begin
  delete from stepwell.stack_request r
  where r.id = _request and (r.answer is not null or _last)
  returning r.answer into _answer;
  return _answer;
end
$$;
