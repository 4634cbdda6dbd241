-- Delete a saved view. Returns whether there was one of this name.
create or replace function stepwell.delete_view(_name text) returns boolean
language plpgsql volatile security definer
as $$
begin
  delete from stepwell.saved_view v where v.name = _name;
  return found;
end
$$;
