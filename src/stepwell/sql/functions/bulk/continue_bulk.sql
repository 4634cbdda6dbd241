-- Work off the next chunk of one bulk operation, for a person who does not wait for the workers: see
-- stepwell.bulk_chunk.
create or replace function stepwell.continue_bulk(
  _id uuid,
  out id uuid,
  out state text,
  out next_in double precision
)
language plpgsql volatile security definer
as $$
begin
  if _id is not null then
    select c.id, c.state, c.next_in into id, state, next_in from stepwell.bulk_chunk(_id) c;
  end if;
end
$$;
