comment on table stepwell.privilege is
  'What each kind of role may do, rewritten from rights.sql by each migration. A function not listed is internal.';
comment on column stepwell.privilege.kind is
  'producer, worker, viewer, operator; everybody: roles that may use the schema.';

comment on table stepwell.grantee is 'The grants made by "stepwell grant". Each migration grants them again.';
comment on column stepwell.grantee.role_id is 'The oid of the role. A later role of the same name is another role.';
